"""Two allocators' cores over a simulated bus, from one seed.

Both replicas believe that they serve, read late, lose answers, crash and begin again; an executor
commits late or never and voids; pods, claims and nodes come, change and go; kube-scheduler
clears; the policy changes; a log is lost and opened again under the next epoch. The recording
begins in the middle of it.
"""

from collections.abc import Callable
from random import Random

from dray.recording.lines import Line
from dray_sandbox.recordings.bus import SimulatedBus
from dray_sandbox.recordings.cluster import RecordedCluster
from dray_sandbox.recordings.executor import RecordedExecutor
from dray_sandbox.recordings.replicas import RecordedReplicas


class Simulation:
    """The cluster, the bus, the executor and two replicas; every move is drawn from the seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._bus = SimulatedBus()
        self._cluster = RecordedCluster(self._bus, self._random)
        self._executor = RecordedExecutor(self._cluster)
        self._replicas = RecordedReplicas(
            self._bus, self._executor, self._random, self._cluster.note
        )
        self._cluster.configure()

    @property
    def lines(self) -> list[Line]:
        """What was recorded."""
        return self._bus.lines

    @property
    def happened(self) -> dict[str, int]:
        """How often what went wrong since the recording began."""
        return self._cluster.happened

    def begin_recording(self) -> None:
        """From here on."""
        self._bus.begin_recording()
        self._cluster.happened.clear()

    def lose_log(self) -> None:
        """Some log is lost, and everybody hears of it."""
        self._replicas.lose(*self._cluster.lose_log())

    def move(self) -> None:
        """Something happens."""
        moves = self._moves()
        (move,) = self._random.choices(list(moves), list(moves.values()))
        move()

    def _moves(self) -> dict[Callable[[], None], int]:
        cluster, executor, replicas = self._cluster, self._executor, self._replicas
        return {
            cluster.submit: 12,
            replicas.turn: 40,
            executor.commit: 24,
            executor.bind: 10,
            executor.void: 10,
            cluster.pass_time: 12,
            replicas.late_append: 6,
            cluster.end_pod: 11,
            cluster.end_claim: 9,
            cluster.clear: 3,
            cluster.fall_ill: 1,
            cluster.move: 1,
            cluster.moved: 3,
            cluster.change_policy: 1,
            replicas.restart: 1,
        }


def simulate(seed: int = 10, *, before: int = 400, moves: int = 2400) -> Simulation:
    """A run whose recording begins after ``before`` moves and goes on for ``moves``.

    How many records another pool had a say in, and can't be compared, is up to chance: of the first
    seeds this one has few.
    """
    simulation = Simulation(seed)
    for number in range(before + moves):
        if number == before:
            simulation.begin_recording()
        if number == before + moves // 2:
            simulation.lose_log()
        simulation.move()
    return simulation
