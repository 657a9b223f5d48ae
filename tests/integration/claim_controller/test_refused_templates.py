"""Templates that can't be made or deleted, and reports that can't be written, delay no others."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.claim_controller.test_refused_writes import ANSWERS, answers
from tests.integration.claim_controller.virtual import VirtualWorld, in_virtual_time

from dray.kube.memory_refusals import InjectedRefusal
from dray.kube.ports import (
    BIND_REQUESTS,
    EVENTS,
    PODS,
    TEMPLATES,
    AlreadyExistsError,
    KubeError,
    NotFoundError,
)


def templates(world: VirtualWorld, namespace: str) -> list[str]:
    """Names of the templates in a namespace."""
    return [name for space, name in world.kube.store.of(TEMPLATES) if space == namespace]


@answers
def test_templates_of_one_namespace_that_fail_hold_up_no_other(
    answer: Callable[[], KubeError],
) -> None:
    async def scenario(world: VirtualWorld) -> None:
        broken = await world.namespace("broken")
        world.kube.refuse(InjectedRefusal(answer(), "create", TEMPLATES, broken, delay_s=8.0))
        for number in range(30):
            await world.pod(
                f"broken-{number}", shape=world.shape(str(100 + number)), namespace=broken
            )
        for number in range(10):
            await world.clock.sleep(5)
            await world.pod(f"honest-{number}", shape=world.shape(str(1 + number)))
            await world.until(
                lambda number=number: len(templates(world, "default")) > number, "it is made", 1.5
            )
        assert not templates(world, broken)

    in_virtual_time(scenario)


@answers
def test_a_template_that_was_refused_is_made_once_it_may_be(
    answer: Callable[[], KubeError],
) -> None:
    # One that is reported to exist is read.
    words = "not found" if isinstance(answer(), AlreadyExistsError) else str(answer())

    async def scenario(world: VirtualWorld) -> None:
        permit = world.kube.refuse(InjectedRefusal(answer(), "create", TEMPLATES))
        await world.pod()
        await world.until(
            lambda: words in (world.bind_request("workload").get("explanation") or ""),
            "the pod's event",
            60,
        )
        reported = world.events("workload")
        assert words in reported.get("TemplateRefused", reported.get("TemplateNotMade", ""))
        assert world.bind_request("workload")["phase"] == "Pending"
        # A later pod has the reason at once.
        await world.pod("later")
        await world.until(lambda: "explanation" in world.bind_request("later"), "the reason", 1)

        await world.clock.sleep(1200)
        permit()
        await world.until(lambda: templates(world, "default"), "it is made", 301)
        for pod in ("workload", "later"):
            await world.claim_of(pod)
            assert not world.bind_request(pod).get("explanation")

    in_virtual_time(scenario)


def test_a_template_that_fails_once_is_not_reported() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.running[0].controller.informers._kube.fail_next(  # type: ignore[attr-defined]
            "create", ANSWERS["500"]()
        )
        await world.pod()
        await world.claim_of("workload")
        await world.clock.sleep(5)
        assert not world.events("workload")
        assert not world.bind_request("workload")

    in_virtual_time(scenario)


@answers
def test_a_template_that_cannot_be_deleted_ends_nothing_and_delays_no_other(
    answer: Callable[[], KubeError],
) -> None:
    async def scenario(world: VirtualWorld) -> None:
        kept = await world.namespace("kept")
        world.kube.refuse(InjectedRefusal(answer(), "delete", TEMPLATES, kept, delay_s=20.0))
        for number in range(20):
            shape = world.shape(str(1 + number))
            await world.pod(f"pod-{number}", shape=shape, namespace=kept)
        await world.pod("other")
        await world.until(lambda: len(templates(world, kept)) == 20, "all templates are made")
        await world.claim_of("other")
        term = world.running[0].controller.term
        for namespace, name in list(world.kube.store.of(PODS)):
            await world.kube.delete(PODS, name, namespace)
        await world.until(lambda: not templates(world, "default"), "the other's is deleted", 75)
        await world.clock.sleep(300)
        assert world.running[0].controller.term is term
        assert len(templates(world, kept)) == 20

    in_virtual_time(scenario)


def test_a_template_that_another_client_deletes_is_done() -> None:
    async def scenario(world: VirtualWorld) -> None:
        tries: list[str] = []

        async def gone(resource: Any, name: str) -> None:
            if resource is TEMPLATES:
                tries.append(name)
                raise NotFoundError("resourceclaimtemplates not found")

        client = world.running[0].controller.informers._kube
        client.before["delete"] = gone  # type: ignore[attr-defined]
        await world.pod()
        await world.claim_of("workload")
        await world.kube.delete(PODS, "workload", "default")
        (name,) = templates(world, "default")
        await world.until(lambda: tries, "it is deleted", 90)
        await world.kube.delete(TEMPLATES, name, "default")
        before = len(tries)
        await world.clock.sleep(60)
        assert len(tries) == before

    in_virtual_time(scenario)


@answers
@pytest.mark.parametrize("delay_s", [0.0, 20.0], ids=["at once", "after 20 s"])
def test_reports_of_pods_that_cannot_be_written_hold_up_no_other(
    answer: Callable[[], KubeError], delay_s: float
) -> None:
    async def scenario(world: VirtualWorld) -> None:
        broken = await world.namespace("broken")
        for resource in (BIND_REQUESTS, EVENTS):
            world.kube.refuse(InjectedRefusal(answer(), "", resource, broken, delay_s=delay_s))
        world.allocate()
        for number in range(20):
            await world.pod(f"broken-{number}", shape=world.shape("500", "1Gi"), namespace=broken)
        for number in range(20):
            await world.claim_of(f"broken-{number}", broken)
        await world.clock.sleep(3)
        await world.pod("honest", shape=world.shape("500", "1Gi"))
        await world.claim_of("honest")
        await world.until(
            lambda: world.bind_request("honest").get("reason") == "Waiting", "the reason", 5
        )
        await world.until(lambda: "GPUWaiting" in world.events("honest"), "by an event, too", 5)

    in_virtual_time(scenario)
