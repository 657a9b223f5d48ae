"""What a claim-controller says while NATS stores nothing."""

from structlog.testing import capture_logs

from dray.bus.ports import BusUnavailableError, NoRoomError
from dray.runtime.clock import ManualClock
from dray_claim_controller.publication.store_status import StoreStatus

ERROR = BusUnavailableError("no answer from NATS for dray.state.tick within 2.0 s")


async def test_it_is_a_problem_once_nothing_was_stored_for_seconds() -> None:
    clock = ManualClock()
    status = StoreStatus(clock)
    await clock.advance(60)
    assert status.problem is None, "nothing was published"
    status.stored()
    await clock.advance(2)
    status.failed(ERROR)
    assert status.problem is None, "a server that starts again takes that long"
    await clock.advance(10)
    problem = status.problem or ""
    assert problem.startswith(f"NATS has stored no fact for 12 s ({ERROR})")
    assert "restart nats-server" in problem


async def test_it_is_logged_once_and_its_end_too() -> None:
    clock = ManualClock()
    status = StoreStatus(clock)
    with capture_logs() as logs:
        for _ in range(4):
            await clock.advance(3)
            status.failed(NoRoomError("no space"))
        status.stored()
        await clock.advance(60)
        status.stored()
    assert [one["event"] for one in logs] == ["NATS stores nothing", "NATS stores facts again"]
    assert status.problem is None
