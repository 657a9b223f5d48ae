"""A stack that has become the next minor."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.conformance.left_out import only_where
from tests.conformance.stand import standing
from tests.conformance.upgrade.upgraded import BUSY, Upgraded, upgrade

from dray.kube.ports import POOLS
from dray_sandbox.controlplane.build import MINOR_VARIABLE, MINORS, build, wanted_minor
from dray_sandbox.layout import StackOptions, simulated_nodes
from tools.faults.fault_stack import create_pools
from tools.faults.plan import DEDICATED, SHARED


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upgraded() -> AsyncIterator[Upgraded]:
    newer = wanted_minor()
    only_where(newer != MINORS[0], "it is the oldest that dray knows, and nothing is older")
    older = MINORS[MINORS.index(newer) - 1]
    binary = await build(print, newer)
    options = StackOptions(
        name="conformance-upgrade",
        control_plane="real",
        nodes=simulated_nodes(3, gpus=2, models=("A100",), pools=(DEDICATED, SHARED, BUSY)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MINOR_VARIABLE, older)
        async with standing(options) as stand:
            await create_pools(stand.kube)
            spec = {"schedulingConfigTemplate": "default-scheduling-config", "dedicated": True}
            await stand.kube.create(POOLS, {"metadata": {"name": BUSY}, "spec": spec})
            yield await upgrade(stand, binary)
