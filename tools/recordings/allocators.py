"""Two allocators' cores over a simulated bus, from one seed.

Both replicas serve, read late, lose answers and restart; an executor commits late or never, and
voids; pods, claims and nodes are created, changed and deleted; kube-scheduler deallocates; the
policy changes; a log is lost and opened again with the next epoch. The recording starts meanwhile.
"""

from collections.abc import Callable
from random import Random

from dray.recording.lines import Line
from tools.recordings.bus import SimulatedBus
from tools.recordings.cluster import RecordedCluster
from tools.recordings.executor import RecordedExecutor
from tools.recordings.replicas import RecordedReplicas


class Simulation:
    """The cluster, the bus, the executor and two replicas; the seed determines every action."""

    def __init__(self, seed: int, *, groups: bool = False) -> None:
        """``groups``: whether there are PodGroups."""
        self._groups = groups
        self._random = Random(seed)
        self._bus = SimulatedBus()
        self._cluster = RecordedCluster(self._bus, self._random)
        self._executor = RecordedExecutor(self._cluster)
        self._replicas = RecordedReplicas(
            self._bus, self._executor, self._random, self._cluster.count_event
        )
        self._cluster.configure()

    @property
    def lines(self) -> list[Line]:
        """The recorded lines."""
        return self._bus.lines

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of events since the recording started."""
        return self._cluster.counts

    def begin_recording(self) -> None:
        """Record from now on."""
        self._bus.begin_recording()
        self._cluster.counts.clear()

    def lose_log(self) -> None:
        """Lose a log, and notify the replicas."""
        self._replicas.lose(*self._cluster.lose_log())

    def move(self) -> None:
        """Take a random action."""
        moves = self._moves()
        (move,) = self._random.choices(list(moves), list(moves.values()))
        move()

    def _moves(self) -> dict[Callable[[], None], int]:
        cluster, executor, replicas = self._cluster, self._executor, self._replicas
        of_groups = {cluster.submit_group: 6, cluster.delete_group: 1} if self._groups else {}
        return {
            **of_groups,
            cluster.submit: 12,
            replicas.step: 40,
            executor.commit: 24,
            executor.bind: 10,
            executor.void: 10,
            cluster.tick: 12,
            replicas.late_append: 6,
            cluster.delete_pod: 11,
            cluster.delete_claim: 9,
            cluster.clear: 3,
            cluster.change_gpu_health: 1,
            cluster.move: 1,
            cluster.finish_move: 3,
            cluster.change_policy: 1,
            replicas.restart: 1,
        }


def simulate(
    seed: int = 11, *, before: int = 400, moves: int = 2400, groups: bool = False
) -> Simulation:
    """A run whose recording starts after ``before`` actions and has ``moves``.

    The default seed is one of the first with few records that depend on another pool, which can't
    be compared.
    """
    simulation = Simulation(seed, groups=groups)
    for number in range(before + moves):
        if number == before:
            simulation.begin_recording()
        if number == before + moves // 2:
            simulation.lose_log()
        simulation.move()
    return simulation


def simulate_groups() -> Simulation:
    """The committed run with PodGroups: gangs start, lose pods and get successors."""
    return simulate(2, before=100, moves=1500, groups=True)
