"""A crash at every single write of Prepare and Unprepare, and calls that race each other."""

import asyncio
import itertools
import shutil
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.names import DRIVER
from dray.kube.memory import MemoryKube
from dray.kube.memory_refusals import InjectedRefusal
from dray.kube.ports import CLAIMS, PODS, KubeUnavailableError, NotServedError, RefusedError
from dray.runtime.clock import ManualClock
from dray_node_agent.decisions.claim_devices import prepared_parts
from dray_node_agent.decisions.inventory import NodeInventory, NodeState
from dray_node_agent.files import atomic_files, cdi_folder, checkpoint
from dray_node_agent.files.cdi_folder import CdiFolder
from dray_node_agent.files.checkpoint import CheckpointFile
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_node_agent.kubelet import preparer as preparer_module
from dray_node_agent.kubelet.prepared_claims import PreparedClaims
from dray_node_agent.kubelet.preparer import ClaimRef, Preparer

STOCK = NodeInventory(SimulatedGpus("n1", "A100", 2).read(), NodeState("n1"))
CARD, OTHER_CARD = STOCK.published_gpus


class PowerCutError(BaseException):
    """The process ends here; nothing may catch it."""


class Disk:
    """Counts writes, and cuts the power before the ``cut``-th, or right after it."""

    def __init__(self, monkeypatch):
        self.cut, self.after, self.count = 0, False, 0
        monkeypatch.setattr(checkpoint, "write_atomically", self._write)
        monkeypatch.setattr(cdi_folder, "write_atomically", self._write)
        remove = CdiFolder.remove
        monkeypatch.setattr(CdiFolder, "remove", lambda *args: self._step(remove, *args))

    def _write(self, path, content, **more):
        self._step(atomic_files.write_atomically, path, content, **more)

    def _step(self, write, *args, **more):
        self.count += 1
        if self.count == self.cut and not self.after:
            raise PowerCutError
        write(*args, **more)
        if self.count == self.cut:
            raise PowerCutError


@pytest.fixture
def machine(monkeypatch):
    return Disk(monkeypatch)


async def claim(kube, name, *, tflops="200", device=CARD) -> ClaimRef:
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}
    made = await kube.create(CLAIMS, {"metadata": {"name": name}, "spec": spec}, "ns")
    await allocate(kube, name, tflops=tflops, device=device)
    return ClaimRef("ns", made["metadata"]["uid"], name)


async def allocate(kube, name, *, tflops="200", device=CARD, node="n1"):
    result = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": node,
        "device": device,
        "shareID": name,
        "consumedCapacity": {"virtual_tflops": tflops, "virtual_vram": "1Gi"},
    }
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"uid": "pod"}]}
    await kube.patch(CLAIMS, name, {"status": status}, "ns", subresource="status")


async def deallocate(kube, name):
    status = {"allocation": None, "reservedFor": None}
    await kube.patch(CLAIMS, name, {"status": status}, "ns", subresource="status")


def preparer(kube, folder, pods=lambda _: None, boot="boot") -> Preparer:
    return Preparer(
        kube=kube,
        node="n1",
        inventory=lambda: STOCK,
        prepared_claims=PreparedClaims(
            CheckpointFile(folder / "checkpoint.json", boot), CdiFolder(folder / "cdi")
        ),
        clock=ManualClock(),
        patience_s=0.0,
        pods=pods,
    )


async def survives(work) -> bool:
    """Whether the power stayed on."""
    try:
        await work
    except PowerCutError:
        return False
    return True


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("doing", ["prepare", "unprepare"])
async def test_a_crash_at_any_write_is_repaired_by_restart_and_retry(
    machine, tmp_path, doing, after
):
    for cut in itertools.count(1):
        folder, kube = tmp_path / str(cut), MemoryKube()
        ref = await claim(kube, "c")
        first = preparer(kube, folder)
        await first.restore()
        if doing == "unprepare":
            await first.prepare([ref])
        machine.count, machine.cut, machine.after = 0, cut, after
        survived = await survives(getattr(first, doing)([ref]))
        machine.cut = 0

        second = preparer(kube, folder)
        await second.restore()
        assert set(CdiFolder(folder / "cdi").claims()) == set(second.claims)
        (answer,) = (await second.prepare([ref])).values()
        assert not isinstance(answer, str)
        assert CdiFolder(folder / "cdi").claims() == (ref.uid,)
        assert await second.unprepare([ref]) == {ref.uid: ""}
        assert CdiFolder(folder / "cdi").claims() == ()
        assert not second.claims
        if survived:
            assert cut == 3
            return


async def test_of_two_claims_that_race_for_a_card_one_is_prepared(tmp_path):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    refs = [await claim(kube, f"c{n}") for n in range(4)]
    answers = await asyncio.gather(*(agent.prepare([ref]) for ref in refs))
    errors = [one for answer in answers for one in answer.values() if isinstance(one, str)]
    assert len(errors) == 3
    assert len(agent.claims) == len(CdiFolder(tmp_path / "cdi").claims()) == 1


async def test_the_same_claim_prepared_many_times_at_once_is_prepared_once(machine, tmp_path):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    ref = await claim(kube, "c")
    machine.count = 0
    answers = await asyncio.gather(*(agent.prepare([ref]) for _ in range(5)))
    assert all(answer == answers[0] for answer in answers)
    assert machine.count == 2  # checkpoint, CDI file


async def test_unprepare_waits_for_the_prepare_it_overtook(tmp_path):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    ref = await claim(kube, "c")
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(*_):
        asked.set()
        await answer.wait()

    kube.before["get"] = slow
    preparing = asyncio.create_task(agent.prepare([ref]))
    await asked.wait()
    unpreparing = asyncio.create_task(agent.unprepare([ref]))
    await asyncio.sleep(0)
    answer.set()
    await asyncio.gather(preparing, unpreparing)
    assert not agent.claims
    assert CdiFolder(tmp_path / "cdi").claims() == ()


async def test_the_sweep_forgets_claims_that_are_gone_or_hold_nothing(tmp_path):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    refs = [await claim(kube, name, tflops="1") for name in ("stays", "gone", "cleared")]
    await agent.prepare(refs)
    await kube.delete(CLAIMS, "gone", "ns")
    await deallocate(kube, "cleared")
    assert set(await agent.sweep()) == {refs[1].uid, refs[2].uid}
    assert CdiFolder(tmp_path / "cdi").claims() == (refs[0].uid,)


@pytest.mark.parametrize(
    "error",
    [
        RefusedError("policy", 403),
        KubeUnavailableError("failed"),
        NotServedError("404 page not found"),
    ],
)
async def test_a_claim_that_can_not_be_read_is_swept_by_nobody_and_holds_up_no_other(
    tmp_path, error
):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    refs = [await claim(kube, name, tflops="1") for name in ("a-refused", "gone")]
    await agent.prepare(refs)
    for name in ("a-refused", "gone"):
        await kube.delete(CLAIMS, name, "ns")
    kube.refuse(InjectedRefusal(error, "get", CLAIMS, name="a-refused"))
    assert await agent.sweep() == (refs[1].uid,)

    # Nor are its GPUs given away.
    whole = await claim(kube, "whole", tflops="312")
    (answer,) = (await agent.prepare([whole])).values()
    assert isinstance(answer, str)
    assert str(error) not in answer


async def test_only_a_claim_that_the_server_does_not_have_is_reported_as_missing(tmp_path):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    ref = await claim(kube, "c")
    permit = kube.refuse(InjectedRefusal(NotServedError("404 page not found"), "get", CLAIMS))
    assert await agent.prepare([ref]) == {ref.uid: "404 page not found"}
    permit()
    await kube.delete(CLAIMS, "c", "ns")
    answer = "claim ns/c does not exist, or no longer"
    assert await agent.prepare([ref]) == {ref.uid: answer}


async def test_a_checkpoint_that_can_not_be_read_is_rebuilt_once_claims_can_be_listed(tmp_path):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    ref = await claim(kube, "one")
    await agent.prepare([ref])
    (tmp_path / "checkpoint.json").write_text("no checkpoint")
    CdiFolder(tmp_path / "cdi").remove(ref.uid)

    permit = kube.refuse(InjectedRefusal(RefusedError("policy", 403), "list", CLAIMS))
    for _ in range(2):
        agent = preparer(kube, tmp_path)  # As after a restart.
        with pytest.raises(RefusedError):
            await agent.restore()
    permit()
    await agent.restore()
    assert list(agent.claims) == [ref.uid]
    assert CdiFolder(tmp_path / "cdi").claims() == (ref.uid,)


async def test_a_rebuilt_entry_has_no_file_of_an_earlier_allocation(tmp_path):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    ref = await claim(kube, "one")
    await agent.prepare([ref])
    await deallocate(kube, "one")
    await allocate(kube, "one", device=OTHER_CARD)
    (tmp_path / "checkpoint.json").write_text("no checkpoint")

    agent = preparer(kube, tmp_path)
    await agent.restore()

    assert devices(agent.claims[ref.uid]) == [OTHER_CARD]
    file = CdiFolder(tmp_path / "cdi").path(ref.uid).read_text()
    assert OTHER_CARD in file
    assert CARD not in file


async def test_a_claim_that_was_prepared_again_meanwhile_is_not_removed(tmp_path):
    """The one who removes it has read the API server before."""
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    ref = await claim(kube, "c")
    await agent.prepare([ref])
    judged = agent.claims[ref.uid]
    await deallocate(kube, "c")
    await allocate(kube, "c", device=OTHER_CARD)
    await agent.prepare([ref])
    prepared = PreparedClaims(
        CheckpointFile(tmp_path / "checkpoint.json", "boot"), CdiFolder(tmp_path / "cdi")
    )

    async def not_rebuilt():
        raise AssertionError("the checkpoint can be read")

    await prepared.restore(not_rebuilt)
    await prepared.remove(ref.uid, only=judged)
    assert devices(prepared.claims[ref.uid]) == [OTHER_CARD]
    assert CdiFolder(tmp_path / "cdi").claims() == (ref.uid,)
    await prepared.remove(ref.uid, only=prepared.claims[ref.uid])
    assert not prepared.claims
    assert CdiFolder(tmp_path / "cdi").claims() == ()


async def test_a_full_disk_fails_the_claim_and_the_retry_succeeds(tmp_path, monkeypatch):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    ref = await claim(kube, "c")
    with monkeypatch.context() as patched:

        def full(*_, **__):
            raise OSError(28, "No space left on device")

        patched.setattr(cdi_folder, "write_atomically", full)
        (error,) = (await agent.prepare([ref])).values()
        assert "No space left" in error
    (answer,) = (await agent.prepare([ref])).values()
    assert not isinstance(answer, str)


async def test_a_checkpoint_that_can_not_be_written_is_named_with_what_to_do(tmp_path, monkeypatch):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    ref = await claim(kube, "c")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "write_atomically", full)
        (error,) = (await agent.prepare([ref])).values()
    assert f"{tmp_path}/checkpoint.json can't be written: No space left on device" in error
    assert "DRAY_NODE__STATE_DIR" in error
    assert CdiFolder(tmp_path / "cdi").claims() == ()
    assert devices((await agent.prepare([ref]))[ref.uid]) == [CARD]


async def test_a_preparation_waits_for_the_disk_once(tmp_path, monkeypatch):
    """A busy machine takes milliseconds to wake a thread, and again to wake the loop."""
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    refs = [await claim(kube, f"c{n}", tflops="1") for n in range(3)]
    calls, to_thread = [], asyncio.to_thread

    async def counting(*args):
        calls.append(args)
        return await to_thread(*args)

    monkeypatch.setattr(asyncio, "to_thread", counting)
    await agent.prepare(refs[:1])
    assert len(calls) == 1
    await agent.unprepare(refs[:1])
    assert len(calls) == 3  # file, checkpoint
    await asyncio.gather(*(agent.prepare([ref]) for ref in refs[1:]))
    assert CdiFolder(tmp_path / "cdi").claims() == tuple(sorted(ref.uid for ref in refs[1:]))


async def test_of_claims_written_together_one_whose_file_fails_fails_alone(tmp_path, monkeypatch):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    refs = [await claim(kube, f"c{n}", tflops="1") for n in range(3)]
    write, remove = CdiFolder.write, CdiFolder.remove

    def refuse(uid):
        if uid == refs[1].uid:
            raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(CdiFolder, "write", lambda *args: refuse(args[1]) or write(*args))
        answers = await agent.prepare(refs)
    assert [isinstance(answers[ref.uid], str) for ref in refs] == [False, True, False]
    await agent.prepare(refs)

    with monkeypatch.context() as patched:
        patched.setattr(CdiFolder, "remove", lambda *args: refuse(args[1]) or remove(*args))
        errors = await agent.unprepare(refs)
    assert ["Read-only" in errors[ref.uid] for ref in refs] == [False, True, False]
    for one in (agent, preparer(kube, tmp_path)):
        await one.restore()
        assert list(one.claims) == [refs[1].uid]
        assert CdiFolder(tmp_path / "cdi").claims() == (refs[1].uid,)
    assert await agent.unprepare(refs) == {ref.uid: "" for ref in refs}
    assert not agent.claims


async def test_other_claims_of_the_node_are_only_read_if_the_pod_has_them(tmp_path, monkeypatch):
    kube = MemoryKube()
    uses = [{"name": name, "resourceClaimName": name} for name in ("a", "b")]
    spec = {"resourceClaims": uses, "containers": []}
    pod = await kube.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "ns")
    agent = preparer(kube, tmp_path, pods=lambda _: pod)
    await agent.restore()
    await agent.prepare([await claim(kube, name, tflops="1") for name in ("c", "d", "a")])
    read = []

    def reading(one, gpus):
        read.append(one.name)
        return prepared_parts(one, gpus)

    monkeypatch.setattr(preparer_module, "prepared_parts", reading)
    await agent.prepare([await claim(kube, "b", tflops="1")])
    assert read == ["a"]


async def test_a_pods_claims_that_were_allocated_again_name_the_new_gpus(tmp_path):
    kube = MemoryKube()
    uses = [{"name": name, "resourceClaimName": name} for name in ("a", "b")]
    container = {"name": "app", "resources": {"claims": [{"name": "a"}, {"name": "b"}]}}
    spec = {"resourceClaims": uses, "containers": [container]}
    pod = await kube.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "ns")
    agent = preparer(kube, tmp_path, pods=lambda _: pod)
    await agent.restore()
    refs = [await claim(kube, name, tflops="1") for name in ("a", "b")]
    await agent.prepare(refs)
    for ref in refs:
        await deallocate(kube, ref.name)
        await allocate(kube, ref.name, tflops="1", device=OTHER_CARD)

    await agent.prepare(refs)

    uuids = {name: one.gpu.uuid for name, one in STOCK.published_gpus.items()}
    for ref in refs:
        file = CdiFolder(tmp_path / "cdi").path(ref.uid).read_text()
        assert f"NVIDIA_VISIBLE_DEVICES={uuids[OTHER_CARD]}" in file
        assert uuids[CARD] not in file


async def test_many_claims_are_read_over_few_connections(tmp_path):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    refs = [await claim(kube, f"c{n}", tflops="1") for n in range(40)]
    reading = most = 0

    async def slow(*_):
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0)
        reading -= 1

    kube.before["get"] = slow
    await asyncio.gather(*(agent.prepare([ref]) for ref in refs))
    assert len(agent.claims) == 40
    assert most == preparer_module.READS_AT_ONCE


def devices(entry):
    return [one.device for one in entry.devices]


async def test_a_claim_that_was_allocated_again_without_unprepare_gets_its_new_devices(tmp_path):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    ref = await claim(kube, "c")
    await agent.prepare([ref])
    await deallocate(kube, "c")
    await allocate(kube, "c", device=OTHER_CARD)
    assert devices((await agent.prepare([ref]))[ref.uid]) == [OTHER_CARD]
    assert devices(agent.claims[ref.uid]) == [OTHER_CARD]
    file = CdiFolder(tmp_path / "cdi").path(ref.uid).read_text()
    assert OTHER_CARD in file
    assert CARD not in file


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_the_sweep_forgets_claims_that_were_allocated_again(tmp_path, node):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    ref = await claim(kube, "c")
    await agent.prepare([ref])
    await deallocate(kube, "c")
    await allocate(kube, "c", device=OTHER_CARD, node=node)
    assert await agent.sweep() == (ref.uid,)
    assert not agent.claims


async def test_devices_of_an_earlier_allocation_are_given_to_the_next_claim(tmp_path):
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    old = await claim(kube, "old")
    await agent.prepare([old])
    await deallocate(kube, "old")
    await allocate(kube, "old", device=OTHER_CARD)
    new = await claim(kube, "new")
    assert devices((await agent.prepare([new]))[new.uid]) == [CARD]


async def test_a_claim_whose_file_can_not_be_removed_keeps_its_device_from_others(
    tmp_path, monkeypatch
):
    """Also from those that are written at the same time."""
    kube = MemoryKube()
    agent = preparer(kube, tmp_path)
    await agent.restore()
    old, new = await claim(kube, "old"), await claim(kube, "new")
    await agent.prepare([old])
    disk, write = threading.Event(), atomic_files.write_atomically

    def write_slowly(*args):
        assert disk.wait(10)
        write(*args)

    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(checkpoint, "write_atomically", write_slowly)
    monkeypatch.setattr(CdiFolder, "remove", refuse)
    first = asyncio.create_task(agent.prepare([await claim(kube, "first", device=OTHER_CARD)]))
    await asyncio.sleep(0.01)
    both = asyncio.gather(agent.unprepare([old]), agent.prepare([new]))
    await asyncio.sleep(0.01)
    disk.set()
    await first
    errors, answers = await both
    assert "Read-only" in errors[old.uid]
    assert "prepared for ns/old" in answers[new.uid]
    assert new.uid not in agent.claims


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([None, CARD, OTHER_CARD]),
        st.sampled_from(["prepare", "unprepare", "away"]),
    ),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, kept=st.integers(0, 8), order=st.permutations(["a", "b", "c"]))
def test_after_a_power_cut_any_earlier_checkpoint_will_do(tmp_path_factory, steps, kept, order):
    """The names of files are not flushed, so the last writes may be taken back; the files in the
    CDI folder are gone. The kubelet prepares claims of pods again before it starts them."""
    asyncio.run(cut_power(tmp_path_factory.mktemp("node"), steps, kept, order))


async def cut_power(folder, steps, kept, order):
    kube, file = MemoryKube(), folder / "checkpoint.json"
    refs = {name: await claim(kube, name, tflops="100") for name in order}
    agent = preparer(kube, folder)
    await agent.restore()
    on_disk = [None]
    for name, device, doing in steps:
        await deallocate(kube, name)  # whether or not the kubelet unprepared it
        if device is not None:
            await allocate(kube, name, device=device, tflops="100")
        if doing != "away":
            await getattr(agent, doing)([refs[name]])
        on_disk.append(file.read_bytes())

    shutil.rmtree(folder / "cdi", ignore_errors=True)
    old = on_disk[min(kept, len(on_disk) - 1)]
    file.unlink() if old is None else file.write_bytes(old)
    agent = preparer(kube, folder, boot="next")
    await agent.restore()
    allocated = {}
    for name in order:
        status = (await kube.get(CLAIMS, name, "ns")).get("status") or {}
        if status.get("allocation"):
            (result,) = status["allocation"]["devices"]["results"]
            allocated[refs[name].uid] = [result["device"]]
            answer = (await agent.prepare([refs[name]]))[refs[name].uid]
            assert devices(answer) == [result["device"]]
    await agent.sweep()
    assert {uid: devices(one) for uid, one in agent.claims.items()} == allocated
    assert CdiFolder(folder / "cdi").claims() == tuple(sorted(allocated))
