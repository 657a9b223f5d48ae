"""The time of the facts under any clocks: those who publish ticks, and an allocator that reads."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from dray.messages.facts import Tick
from dray.runtime.clock import SystemClock
from dray_allocator.state.facts import Facts
from dray_claim_controller.facts.facts_time import FactsTime

TEN_YEARS_S = 10 * 365 * 86_400.0
TICK_S = 1.0
MOST_STEP_S = 5 * TICK_S
BEGAN_UNIX_S = 1_700_000_000.0


class Machine(SystemClock):
    """A host: its wall clock jumps, its monotonic clock began some time and counts seconds."""

    def __init__(self, booted_s: float) -> None:
        self.wall_unix_s = BEGAN_UNIX_S
        self.booted_s = booted_s

    def now_unix_s(self) -> float:
        return self.wall_unix_s

    def monotonic_s(self) -> float:
        return self.booted_s

    def passes(self, seconds: float) -> None:
        self.wall_unix_s += seconds
        self.booted_s += seconds


@dataclass
class Story:
    """Two machines that lead in turns, and what is on the bus."""

    machines: tuple[Machine, Machine] = field(
        default_factory=lambda: (Machine(7.0), Machine(3_000_000.0))
    )
    ticks: list[Tick] = field(default_factory=list)
    led_s: float = 0.0
    """How long somebody led, as far as one tick may count."""

    def __post_init__(self) -> None:
        self.leader = FactsTime(self.machines[0], tick_s=TICK_S)
        self.tick()

    def tick(self) -> None:
        self.ticks.append(self.leader.tick())

    def passes(self, seconds: float) -> None:
        for machine in self.machines:
            machine.passes(seconds)

    def lead(self, seconds: float) -> None:
        self.passes(seconds)
        self.led_s += min(seconds, MOST_STEP_S)
        self.tick()

    def take_over(self, machine: int) -> None:
        self.leader = FactsTime(self.machines[machine], tick_s=TICK_S)
        self.leader.continue_from(self.ticks[-1])


waits_s = st.floats(min_value=0.0, max_value=100.0)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("lead"), waits_s),
        st.tuples(st.just("nobody leads"), waits_s),
        st.tuples(st.just("take over"), st.integers(0, 1)),
        st.tuples(st.just("jump"), st.tuples(st.integers(0, 1), st.floats(-1.0, 1.0))),
    ),
    max_size=40,
)


def reported(found: list[tuple[str, object]]) -> Story:
    story = Story()
    for what, by in found:
        match what, by:
            case "lead", float(seconds):
                story.lead(seconds)
            case "nobody leads", float(seconds):
                story.passes(seconds)
                story.take_over(0)
            case "take over", int(machine):
                story.take_over(machine)
            case "jump", (int(machine), float(share)):
                story.machines[machine].wall_unix_s += share * TEN_YEARS_S
    return story


def read(ticks: list[Tick]) -> Facts:
    facts = Facts()
    for tick in ticks:
        facts.tick(tick)
    return facts


@given(steps)
def test_the_facts_time_is_how_long_somebody_led_whatever_the_wall_clocks_say(
    found: list[tuple[str, object]],
) -> None:
    story = reported(found)
    passed_s = story.ticks[-1].now_unix_s - BEGAN_UNIX_S
    assert abs(passed_s - story.led_s) < 1e-3


@given(steps, st.data())
def test_readers_agree_wherever_they_began_and_whatever_they_missed(
    found: list[tuple[str, object]], data: st.DataObject
) -> None:
    """The stream keeps the last tick alone: who was away, or starts, reads some of them."""
    story = reported(found)
    kept = data.draw(st.lists(st.booleans(), min_size=len(story.ticks)))
    some = [tick for tick, keeps in zip(story.ticks, kept, strict=False) if keeps]
    whole, partly = read(story.ticks), read([*some, story.ticks[-1]])
    assert abs(whole.now_unix_s - story.ticks[-1].now_unix_s) < 1e-3
    assert abs(partly.now_unix_s - story.ticks[-1].now_unix_s) < 1e-3


@given(st.lists(st.floats(-TEN_YEARS_S, TEN_YEARS_S), max_size=20), st.integers(0, 20))
def test_a_tick_of_an_earlier_release_adds_a_minute_at_most_whatever_its_clock_says(
    jumps_s: list[float], right: int
) -> None:
    """Such ticks have the wall clock's time, and state no bound."""
    ticks = [Tick(revision=1, now_unix_s=BEGAN_UNIX_S)]
    clock_s = [BEGAN_UNIX_S + jump_s for jump_s in jumps_s]
    clock_s += [BEGAN_UNIX_S + second for second in range(right)]
    ticks += [Tick(revision=2 + at, now_unix_s=now_s) for at, now_s in enumerate(clock_s)]
    facts = read(ticks)
    age_s = facts.age_s(BEGAN_UNIX_S)
    assert age_s <= 60.0 * (len(jumps_s) + 1) + max(0, right - 1)
    assert age_s >= max(0, right - 1) - 1e-3, "time goes on by the right ticks"


@given(st.floats(-TEN_YEARS_S, TEN_YEARS_S))
def test_a_record_of_any_time_grows_old(decided_s: float) -> None:
    """Also one that was written by a replica which began with a wrong tick."""
    facts = read([Tick(revision=1, now_unix_s=BEGAN_UNIX_S)])
    for second in range(1, 62):
        facts.tick(Tick(revision=1 + second, now_unix_s=BEGAN_UNIX_S + second))
        if facts.age_s(BEGAN_UNIX_S + decided_s) >= 30.0:
            return
    raise AssertionError(f"{decided_s} s is not old after a minute")
