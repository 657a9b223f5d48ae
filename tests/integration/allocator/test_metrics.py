"""What /metrics shows of pools."""

from typing import Any

from tests.integration.allocator.cluster import POOL, Cluster, Replica, until

from dray.messages.facts import DomainObserved

OTHER = "other"


def shown_pools(replica: Replica) -> set[str]:
    """Values of the label ``domain``."""
    samples = (one for metric in replica.registry.collect() for one in metric.samples)
    return {one.labels["domain"] for one in samples if "domain" in one.labels}


async def test_a_waiting_pod_counts_at_the_replica_that_serves_its_pool(
    memory_cluster: Cluster, eventually: Any
) -> None:
    """Else more replicas would leave the mean by which an autoscaler counts as it is."""
    cluster = memory_cluster
    replicas = [await cluster.replica(name) for name in "ab"]
    await cluster.submit("waits")

    def have_it(replica: Replica) -> bool:
        domain = replica.state.domains.get(POOL)
        return domain is not None and bool(domain.queue.pending)

    await eventually(lambda: all(map(have_it, replicas)) and any(one.serves for one in replicas))
    counts = [one.registry.get_sample_value("dray_allocator_waiting_pods") for one in replicas]
    assert sorted(counts) == [0, 1]


async def delete_pool(cluster: Cluster, pool: str) -> None:
    await cluster.publish(
        DomainObserved(revision=cluster.next(), domain=pool, epoch=1, deleted=True)
    )


async def test_the_series_of_a_deleted_pool_are_removed(
    memory_cluster: Cluster, eventually: Any
) -> None:
    cluster = memory_cluster
    await cluster.add_pool(OTHER)
    replica = await cluster.replica("a")
    for pool in (POOL, OTHER):
        await cluster.node(f"of-{pool}", pool=pool)
        await cluster.submit(f"runs-{pool}", pool=pool)
        await cluster.submit(f"waits-{pool}", pool=pool)
    await eventually(lambda: shown_pools(replica) == {POOL, OTHER})

    await delete_pool(cluster, OTHER)

    await eventually(lambda: shown_pools(replica) == {POOL})


async def test_a_record_that_is_appended_while_its_pool_is_deleted_makes_no_series(
    memory_cluster: Cluster, eventually: Any
) -> None:
    cluster = memory_cluster
    replica = await cluster.replica("a")
    await eventually(lambda: replica.serves)
    replica.wire.open.clear()
    await cluster.node("n")
    await cluster.submit("late")
    await eventually(lambda: replica.wire.held > 0)
    await delete_pool(cluster, POOL)
    await eventually(lambda: POOL not in replica.state.domains)

    replica.wire.open.set()

    async def is_appended() -> bool:
        return bool(await cluster.decisions())

    await until(is_appended)
    assert shown_pools(replica) == set()
