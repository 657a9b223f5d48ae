"""Claims that are nested deep are prepared; one that can't be read hinders no other."""

import json

import msgspec

from dray.api.names import DECISION, DRIVER
from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS
from dray.runtime.clock import ManualClock
from dray_node_agent.decisions.inventory import NodeInventory, NodeState
from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.files.cdi_folder import CdiFolder
from dray_node_agent.files.checkpoint import CheckpointFile
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_node_agent.kubelet.prepared_claims import PreparedClaims
from dray_node_agent.kubelet.preparer import ClaimRef, Preparer

STOCK = NodeInventory(SimulatedGpus("n1", "A100", 2).read(), NodeState("n1"))
CARD = next(iter(STOCK.published_gpus))
DEEP = {"kind": "GPULimits", "tflopsLimit": "7", "a": msgspec.Raw(b"[" * 9_900 + b"]" * 9_900)}


async def claim(
    kube: MemoryKube, name: str, parameters=DEEP, *, tflops="10", **annotations: str
) -> ClaimRef:
    config = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    requests = [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]
    spec = {"devices": {"requests": requests, "config": config}}
    metadata = {"name": name, "annotations": annotations}
    made = await kube.create(CLAIMS, {"metadata": metadata, "spec": spec}, "ns")
    result = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": "n1",
        "device": CARD,
        "shareID": name,
        "consumedCapacity": {"virtual_tflops": tflops, "virtual_vram": "1Gi"},
    }
    devices = {"results": [result], "config": [{"source": "FromClaim", **config[0]}]}
    status = {"allocation": {"devices": devices}, "reservedFor": [{"uid": "pod"}]}
    await kube.patch(CLAIMS, name, {"status": status}, "ns", subresource="status")
    return ClaimRef("ns", made["metadata"]["uid"], name)


async def odd_claim(kube: MemoryKube) -> ClaimRef:
    return await claim(kube, "odd", **{DECISION: "9" * 5_000})


def preparer(kube: MemoryKube, folder) -> Preparer:
    checkpoint = CheckpointFile(folder / "checkpoint.json", "boot")
    return Preparer(
        kube=kube,
        node="n1",
        inventory=lambda: STOCK,
        prepared_claims=PreparedClaims(checkpoint, CdiFolder(folder / "cdi")),
        clock=ManualClock(),
    )


async def test_a_claim_with_deep_parameters_is_prepared_by_what_they_say(tmp_path):
    kube = MemoryKube()
    ref = await claim(kube, "deep")
    agent = preparer(kube, tmp_path)
    await agent.restore()
    prepared = (await agent.prepare([ref]))[ref.uid]
    assert isinstance(prepared, PreparedClaim)
    assert prepared.env["TENSOR_FUSION_TFLOPS_LIMIT"] == "7"


async def test_a_claim_that_can_t_be_read_is_refused_and_others_are_prepared(tmp_path):
    kube = MemoryKube()
    odd, fine = await odd_claim(kube), await claim(kube, "fine")
    agent = preparer(kube, tmp_path)
    await agent.restore()
    answers = await agent.prepare([odd, fine])
    assert isinstance(answers[fine.uid], PreparedClaim)
    assert str(answers[odd.uid]).startswith(
        "claim ns/odd can't be read: annotation tensor-fusion.ai/decision has 5000 digits"
    )


async def test_a_lost_checkpoint_is_made_again_of_the_claims_that_can_be_read(tmp_path):
    kube = MemoryKube()
    fine, later = await claim(kube, "fine"), await claim(kube, "odd")
    agent = preparer(kube, tmp_path)
    await agent.restore()
    await agent.prepare([fine, later])
    files = set((tmp_path / "cdi").iterdir())
    (tmp_path / "checkpoint.json").write_text("lost")
    patch = {"metadata": {"annotations": {DECISION: "9" * 5_000}}}
    await kube.patch(CLAIMS, "odd", patch, "ns")
    again = preparer(kube, tmp_path)
    await again.restore()
    # Of the other one the CDI file says what its container has.
    assert set(again.claims) == {fine.uid, later.uid}
    assert set((tmp_path / "cdi").iterdir()) == files
    (tmp_path / "cdi" / f"tensor-fusion.ai-gpu_{later.uid}.json").unlink()
    (tmp_path / "checkpoint.json").write_text("lost")
    await again.restore()
    assert set(again.claims) == {fine.uid}


async def test_a_lost_checkpoint_is_made_again_for_a_configuration_of_a_later_release(tmp_path):
    """That release prepared the claim: its container may run."""
    kube = MemoryKube()
    later = {"apiVersion": "tensor-fusion.ai/v9", "kind": "GPUShareConfig", "tflopsLimit": "all"}
    ref, new = await claim(kube, "later", later), await claim(kube, "new", later)
    file = CdiFolder(tmp_path / "cdi").path(ref.uid)
    file.parent.mkdir()
    file.write_text('{"of": "a later release"}')
    (tmp_path / "checkpoint.json").write_text('{"version":2}')
    agent = preparer(kube, tmp_path)
    await agent.restore()
    assert list(agent.claims) == [ref.uid]
    assert [one.device for one in agent.claims[ref.uid].devices] == [CARD]
    assert json.loads(file.read_text()) == {"of": "a later release"}
    assert "apiVersion is 'tensor-fusion.ai/v9'" in str((await agent.prepare([new]))[new.uid])


async def test_a_claim_that_can_t_be_read_any_more_holds_up_neither_sweep_nor_its_neighbours(
    tmp_path,
):
    kube = MemoryKube()
    refs = [await claim(kube, name) for name in ("odd", "gone")]
    agent = preparer(kube, tmp_path)
    await agent.restore()
    await agent.prepare(refs)
    odd, gone = refs
    await kube.patch(CLAIMS, "odd", {"metadata": {"annotations": {DECISION: "9" * 5_000}}}, "ns")
    full = await claim(kube, "full", tflops="300")
    (refused,) = (await agent.prepare([full])).values()
    assert "would give out 320 of 312 virtual_tflops" in str(refused)
    await kube.delete(CLAIMS, "gone", "ns")
    assert await agent.sweep() == (gone.uid,)
    assert set(agent.claims) == {odd.uid}


async def test_an_error_that_nobody_foresaw_is_the_answer_of_its_claim_alone(tmp_path, monkeypatch):
    kube = MemoryKube()
    refs = [await claim(kube, name) for name in ("odd", "fine")]
    odd, fine = refs
    agent = preparer(kube, tmp_path)
    await agent.restore()
    get, remove = kube.get, PreparedClaims.remove

    async def odd_get(resource, name, *args):
        return {"kind": "ResourceClaim"} if name == "odd" else await get(resource, name, *args)

    with monkeypatch.context() as patched:
        patched.setattr(kube, "get", odd_get)
        answers = await agent.prepare(refs)
    assert isinstance(answers[fine.uid], PreparedClaim)
    assert str(answers[odd.uid]).startswith("claim ns/odd: unexpected error in the node-agent")
    assert agent.failures == 1

    async def odd_remove(self, uid, **more):
        assert uid != odd.uid
        await remove(self, uid, **more)

    with monkeypatch.context() as patched:
        patched.setattr(PreparedClaims, "remove", odd_remove)
        errors = await agent.unprepare(refs)
    assert errors[fine.uid] == ""
    assert errors[odd.uid].startswith("claim ns/odd: unexpected error in the node-agent")
    assert await agent.unprepare(refs) == {odd.uid: "", fine.uid: ""}
