"""A stack that dray has filled, with kube-scheduler restarted."""

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.conformance.stand import NAMESPACE, results_of, standing
from tests.conformance.view.churn import steps
from tests.conformance.view.filled import (
    CARDS_AT_ONCE,
    KUBES,
    OVERSOLD,
    SEED,
    SHARES_AT_ONCE,
    STEPS,
    View,
    churn,
    make_room,
    ready,
    settle,
)

from dray.kube.ports import CLAIMS, POOLS
from dray_sandbox.access import SCHEDULER
from dray_sandbox.layout import StackOptions, simulated_nodes
from tools.faults.fault_stack import create_pools
from tools.faults.plan import DEDICATED, SHARED


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def view() -> AsyncIterator[View]:
    options = StackOptions(
        name="conformance-view",
        control_plane="real",
        nodes=simulated_nodes(6, gpus=4, models=("A100",), pools=(DEDICATED, SHARED, KUBES)),
        settings={"DRAY_OWNER__QUARANTINE": "1s", "DRAY_PUBLISHING__STATUS_EVERY": "200ms"},
    )
    async with standing(options) as stand:
        await create_pools(stand.kube)
        await stand.kube.patch(POOLS, SHARED, {"spec": {"capacityConfig": OVERSOLD}})
        spec = {"schedulingConfigTemplate": "default-scheduling-config", "owner": "kube-scheduler"}
        await stand.kube.create(POOLS, {"metadata": {"name": KUBES}, "spec": spec})
        kept = await stand.until(stand.published, "the probe")
        pools = (DEDICATED, SHARED, KUBES) if kept.device_taints else (DEDICATED, KUBES)
        await ready(stand, kept)
        at_once = SHARES_AT_ONCE if kept.consumable_capacity else CARDS_AT_ONCE
        await churn(stand, steps(SEED, STEPS, pools, at_once))
        waited = await settle(stand)
        if kept.consumable_capacity:  # there are more pods than cards
            await make_room(stand, pools)
        runner = stand.stack.runner
        await runner.stop("kube-scheduler")
        claims = (await stand.kube.list(CLAIMS, NAMESPACE)).objects
        view = View(
            stand,
            kept,
            before={
                claim["metadata"]["name"]: claim["status"]["allocation"]
                for claim in claims
                if results_of(claim)
            },
            waited=waited,
            log_began=runner.log("kube-scheduler").stat().st_size,
            audit_began=len(stand.audited(SCHEDULER)),
        )
        await stand.stack.restart("kube-scheduler")
        yield view
