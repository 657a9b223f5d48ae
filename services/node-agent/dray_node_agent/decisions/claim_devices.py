"""Resolves a claim's allocation on this node: GPUs, consumed capacity, limits and CDI devices."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from dray.api.claims import AllocatedDevice, Claim
from dray.api.devices import OpaqueConfig
from dray.api.enforcement import MPS, NO_ENFORCER, NOTHING_NAMED, Enforcement
from dray.api.errors import PermanentError
from dray.api.names import (
    CONTAINER_FIELD,
    DRIVER,
    SHARE_CONFIG_KINDS,
    VIRTUAL_TFLOPS,
    VIRTUAL_VRAM,
    qualified,
)
from dray.api.quantities import (
    NANO,
    InvalidQuantityError,
    Quantity,
    parse_quantity,
    plain_number,
    readable,
)
from dray.api.share_config import (
    PERCENT_LIMIT_FIELD,
    TFLOPS_LIMIT_FIELD,
    VRAM_LIMIT_FIELD,
    config_problems,
)
from dray_node_agent.decisions.cdi import (
    Spec,
    cdi_device,
    cdi_id,
    device_entry,
    gpu_edits,
    spec_of,
)
from dray_node_agent.decisions.enforcers import Additions, ShareLimits, enforcer_of
from dray_node_agent.decisions.inventory import NodeInventory, PublishedGpu
from dray_node_agent.decisions.prepared_claim import PreparedClaim, PreparedDevice
from dray_node_agent.decisions.visible_gpus import ClaimPart

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_NO_DEVICES = "void"
"""Makes NVIDIA's container runtime add nothing to what CDI gives the container."""
_CONFIG_ENV = {
    TFLOPS_LIMIT_FIELD: "TENSOR_FUSION_TFLOPS_LIMIT",
    VRAM_LIMIT_FIELD: "TENSOR_FUSION_VRAM_LIMIT",
    PERCENT_LIMIT_FIELD: "TENSOR_FUSION_COMPUTE_PERCENT_LIMIT",
    "qos": "TENSOR_FUSION_QOS",
    "isolation": "TENSOR_FUSION_ISOLATION",
}
_LIMITED = {TFLOPS_LIMIT_FIELD: VIRTUAL_TFLOPS, VRAM_LIMIT_FIELD: VIRTUAL_VRAM}
"""By limit: the capacity that caps it."""
_REQUEST_ENV = {
    VIRTUAL_TFLOPS: "TENSOR_FUSION_TFLOPS_REQUEST",
    VIRTUAL_VRAM: "TENSOR_FUSION_VRAM_REQUEST",
}


class NotPreparedError(PermanentError):
    """A claim can't be prepared here; the kubelet shows the message on the pod."""


class DeviceFullError(NotPreparedError):
    """A device has no capacity left besides the claims that are prepared on it."""


@dataclass(frozen=True)
class ClaimedDevice:
    """All allocation results of a claim on one device."""

    published: PublishedGpu
    results: tuple[AllocatedDevice, ...]

    @cached_property
    def consumed(self) -> dict[str, Quantity]:
        """The sum of the results' consumed capacity."""
        return {
            name: _total([_consumed(result, name, full) for result in self.results])
            for name, full in self.published.budget.items()
        }

    @property
    def requests(self) -> tuple[str, ...]:
        """Names in ``spec.devices.requests``, without subrequests, each once."""
        return tuple(dict.fromkeys(_base_request(result.request) for result in self.results))


def _base_request(name: str) -> str:
    """``main`` of ``main/sub``: the kubelet knows no subrequests."""
    return name.split("/", 1)[0]


def device_uses(
    claim: Claim, uid: str, node: str, published_gpus: Mapping[str, PublishedGpu]
) -> tuple[ClaimedDevice, ...]:
    """The devices of ``node`` that are allocated to ``claim``, in the order of its results.

    Raises:
        NotPreparedError: the claim has another uid, is not allocated, or has devices that are not
            here.
    """
    where = f"claim {claim.namespace}/{claim.name}"
    if claim.uid != uid:
        raise NotPreparedError(
            f"{where} has uid {claim.uid}, but uid {uid} was requested: it was recreated"
        )
    if claim.allocation is None:
        raise NotPreparedError(f"{where} is not allocated: wait until status.allocation is set")
    ours = [one for one in claim.allocation.devices if one.id.driver == DRIVER]
    if not ours:
        raise NotPreparedError(f"{where} holds no device of driver {DRIVER}")
    if elsewhere := sorted({str(one.id) for one in ours if one.id.pool != node}):
        raise NotPreparedError(f"{where} holds {elsewhere}, which are not on node {node}")
    if missing := sorted({str(one.id) for one in ours if one.id.device not in published_gpus}):
        raise NotPreparedError(f"{where} holds {missing}, but node {node} has no such GPU now")
    grouped: dict[str, list[AllocatedDevice]] = {}
    for one in ours:
        grouped.setdefault(one.id.device, []).append(one)
    return tuple(
        ClaimedDevice(published_gpus[device], tuple(results)) for device, results in grouped.items()
    )


def _require_config(claim: Claim) -> None:
    """Raise NotPreparedError if a configuration of the claim can't be used."""
    for config in claim.allocation.config if claim.allocation else ():
        if config.driver == DRIVER and (problems := [*config_problems(config.parameters)]):
            raise NotPreparedError(
                f"claim {claim.namespace}/{claim.name}: its configuration of driver {DRIVER} "
                f"({config.source}) can't be used: {'; '.join(problems)}; the claim is not "
                "prepared, because its limits can't be read"
            )


def require_capacity(
    wanted: Sequence[ClaimedDevice],
    held: Iterable[PreparedClaim],
    published_gpus: Mapping[str, PublishedGpu],
) -> None:
    """Check that no device is prepared beyond its virtual capacity, and no card together with a MIG
    instance of it.

    A result without a share id takes the whole device. Results with admin access consume nothing.

    Raises:
        DeviceFullError: a device would be allocated beyond its capacity; names the other claims.
    """
    holders = _holders(held)
    for use in wanted:
        if all(result.admin_access for result in use.results):
            continue
        for device, holding in holders.items():
            if device in published_gpus and _overlap(use.published, published_gpus[device]):
                problem = "shares its memory and compute with what is in use of the same card"
                raise DeviceFullError(_full_text(use, holding, problem))
        others = holders.get(use.published.device, [])
        if others and (_whole(use) or any(device.whole for _, device in others)):
            raise DeviceFullError(_full_text(use, others, "is allocated as a whole"))
        for name, amount in use.consumed.items():
            total_nano = amount.nano + sum(_held(device, name).nano for _, device in others)
            budget = use.published.budget[name]
            if total_nano > budget.nano:
                total = Quantity(total_nano, budget.binary)
                problem = f"would give out {_text(total)} of {_text(budget)} {name}"
                raise DeviceFullError(_full_text(use, others, problem))


def _holders(
    held: Iterable[PreparedClaim],
) -> dict[str, list[tuple[PreparedClaim, PreparedDevice]]]:
    """The claims that consume capacity of each device, by device."""
    found: dict[str, list[tuple[PreparedClaim, PreparedDevice]]] = {}
    for claim in held:
        for device in claim.devices:
            if not device.admin_access:
                found.setdefault(device.device, []).append((claim, device))
    return found


def _overlap(one: PublishedGpu, other: PublishedGpu) -> bool:
    """Whether one is a MIG instance of the other."""
    return one.gpu.uuid == other.gpu.parent_uuid or other.gpu.uuid == one.gpu.parent_uuid


def additions(
    use: ClaimedDevice,
    gpus: Sequence[str] | None,
    claim: Claim,
    qos: str,
    enforcement: Enforcement = NOTHING_NAMED,
) -> Additions:
    """What a container that gets this GPU needs in addition.

    ``gpus``: UUIDs of all GPUs of the container, because the environments of all its devices are
    merged; None: no single list is right for all containers that get this GPU. Amounts are plain
    numbers: TFLOPS, bytes, percent. Limits are capped at the device's virtual capacity.

    Raises:
        NotPreparedError: the container has several GPUs, and each has its own MPS daemon.
    """
    env = {VISIBLE_DEVICES: _NO_DEVICES if gpus is None else ",".join(gpus)}
    env |= {_REQUEST_ENV[name]: plain_number(amount.nano) for name, amount in use.consumed.items()}
    env["TENSOR_FUSION_QOS"] = qos
    stated = _capped(_stated(use, claim), use, enforcement)
    env |= {
        variable: _plain(stated[name]) for name, variable in _CONFIG_ENV.items() if name in stated
    }
    enforcer = enforcement.of(stated.get("isolation", ""))
    if all(result.admin_access for result in use.results):
        enforcer = NO_ENFORCER  # the container only observes the GPU, and has no share of it
    elif enforcer == MPS and (gpus is None or len(gpus) > 1):
        raise NotPreparedError(
            f"claim {claim.namespace}/{claim.name}: a container gets several GPUs under MPS "
            "(enforcer mps of their pool), and a program can use only one MPS daemon, which "
            "serves one GPU: ask for one GPU per container, or use another pool"
        )
    added = enforcer_of(enforcer)(_limits(use, gpus, stated))
    env |= added.env
    env["TENSOR_FUSION_CLAIM_UID"] = claim.uid
    if gpus is not None:
        env["TENSOR_FUSION_GPU_COUNT"] = str(len(gpus))
    return Additions(env, added.mounts)


def prepared_claim(
    claim: Claim,
    wanted: Sequence[ClaimedDevice],
    inventory: NodeInventory,
    traceparent: str,
    visible: Mapping[str, tuple[str, ...] | None] = MappingProxyType({}),
) -> PreparedClaim:
    """The entry of a claim. ``visible``: see ``visible_gpus``; a device that is not in it names all
    GPUs of the claim, or all GPUs of its container if the container has its own requests.

    Raises:
        NotPreparedError: see ``_require_config`` and ``additions``.
    """
    _require_config(claim)
    entries, devices, env = list[Spec](), list[PreparedDevice](), dict[str, str]()
    for container, parts in _by_container(wanted, claim).items():
        own = tuple(part.published.gpu.uuid for part in parts)
        for part in parts:
            one_id = cdi_id(claim.uid, part.published.device, container)
            seen = visible.get(one_id, own)
            added = additions(part, seen, claim, inventory.qos, inventory.state.enforcement)
            env = added.env
            name = cdi_device(claim.uid, part.published.device, container)
            entries.append(device_entry(name, env, gpu_edits(part.published.gpu), added.mounts))
            devices += _prepared_devices(part, one_id)
    return PreparedClaim(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        phase="PrepareCompleted",
        devices=tuple(devices),
        cdi=spec_of(entries, inventory.snapshot.driver_edits),
        env=env,
        traceparent=traceparent,
    )


def names_devices_of(cdi: Spec, claim: Claim, wanted: Sequence[ClaimedDevice]) -> bool:
    """Whether a CDI file belongs to this allocation, and not to an earlier one."""
    names = {part.cdi_id.rpartition("=")[2] for part in claim_parts(claim, wanted)}
    return {device.get("name") for device in cdi.get("devices") or ()} == names


def prepared_with_file(
    claim: Claim, wanted: Sequence[ClaimedDevice], cdi: Spec, traceparent: str
) -> PreparedClaim:
    """The entry of a claim whose CDI file exists: the file's content is not decided again."""
    devices = [
        device
        for container, parts in _by_container(wanted, claim).items()
        for part in parts
        for device in _prepared_devices(part, cdi_id(claim.uid, part.published.device, container))
    ]
    return PreparedClaim(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        phase="PrepareCompleted",
        devices=tuple(devices),
        cdi=cdi,
        traceparent=traceparent,
    )


def is_prepared_for(entry: PreparedClaim, claim: Claim) -> bool:
    """Whether the claim still has the allocation that was prepared. It may have been allocated
    again since, here or on another node, without Unprepare."""
    results = claim.allocation.devices if claim.allocation else ()
    allocated = {
        (_base_request(one.request), one.id.pool, one.id.device, one.share_id)
        for one in results
        if one.id.driver == DRIVER
    }
    prepared = {(one.request, one.pool, one.device, one.share_id) for one in entry.devices}
    return claim.uid == entry.uid and allocated == prepared


def claim_parts(claim: Claim, wanted: Sequence[ClaimedDevice]) -> tuple[ClaimPart, ...]:
    """The CDI devices that the claim has, or will have once it is prepared."""
    return tuple(
        ClaimPart(
            cdi_id(claim.uid, part.published.device, container),
            part.published.gpu.uuid,
            part.requests,
        )
        for container, parts in _by_container(wanted, claim).items()
        for part in parts
    )


def prepared_parts(
    claim: PreparedClaim, published_gpus: Mapping[str, PublishedGpu]
) -> tuple[ClaimPart, ...]:
    """The CDI devices of a prepared claim; GPUs that are gone are left out."""
    requests: dict[tuple[str, str], list[str]] = {}
    for device in claim.devices:
        for one_id in device.cdi_ids:
            requests.setdefault((one_id, device.device), []).append(device.request)
    return tuple(
        ClaimPart(one_id, published_gpus[device].gpu.uuid, tuple(names))
        for (one_id, device), names in requests.items()
        if device in published_gpus
    )


def _by_container(wanted: Sequence[ClaimedDevice], claim: Claim) -> dict[str, list[ClaimedDevice]]:
    """The uses by container; an empty name: all containers that refer to the claim.

    A GPU that several containers share is in the list of each, with that container's results.
    """
    containers = _containers(claim)
    if not containers:
        return {"": list(wanted)} if wanted else {}
    parts: dict[str, list[ClaimedDevice]] = {}
    for use in wanted:
        results: dict[str, list[AllocatedDevice]] = {}
        for result in use.results:
            container = containers.get(_base_request(result.request), "")
            results.setdefault(container, []).append(result)
        for container, own in results.items():
            parts.setdefault(container, []).append(ClaimedDevice(use.published, tuple(own)))
    return parts


def _containers(claim: Claim) -> dict[str, str]:
    """The container of each request that only one has; the first configuration counts."""
    found: dict[str, str] = {}
    for config in claim.allocation.config if claim.allocation else ():
        if config.driver != DRIVER or config.parameters.get("kind") not in SHARE_CONFIG_KINDS:
            continue
        if container := config.parameters.get(CONTAINER_FIELD):
            for request in config.requests:
                found.setdefault(_base_request(request), str(container))
    return found


def _prepared_devices(use: ClaimedDevice, cdi_id: str) -> tuple[PreparedDevice, ...]:
    """The entries of one GPU for the checkpoint and the kubelet."""
    return tuple(
        PreparedDevice(
            request=_base_request(result.request),
            pool=result.id.pool,
            device=result.id.device,
            cdi_ids=(cdi_id,),
            share_id=result.share_id,
            admin_access=result.admin_access,
            consumed={
                name: str(_consumed(result, name, full))
                for name, full in use.published.budget.items()
            },
        )
        for result in use.results
    )


def _consumed(result: AllocatedDevice, name: str, full: Quantity) -> Quantity:
    text = result.consumed.get(name)
    if text is None:
        text = result.consumed.get(qualified(name))
    return full if text is None else parse_quantity(text)


def _held(device: PreparedDevice, name: str) -> Quantity:
    return parse_quantity(device.consumed.get(name, "0"))


def _whole(use: ClaimedDevice) -> bool:
    return any(result.share_id is None and not result.admin_access for result in use.results)


def _total(amounts: Sequence[Quantity]) -> Quantity:
    total = amounts[0] if amounts else Quantity(0)
    for amount in amounts[1:]:
        total = total + amount
    return total


def _full_text(
    use: ClaimedDevice, others: Sequence[tuple[PreparedClaim, PreparedDevice]], problem: str
) -> str:
    names = sorted({f"{claim.namespace}/{claim.name}" for claim, _ in others})
    held_by = f"; prepared for {', '.join(names)}" if names else ""
    return (
        f"card {use.published.device} {problem}{held_by}: two claims were allocated the same budget"
    )


def _applies_to(config: OpaqueConfig, use: ClaimedDevice) -> bool:
    if not config.requests:
        return True
    named = {_base_request(name) for name in config.requests}
    return any(_base_request(result.request) in named for result in use.results)


def _stated(use: ClaimedDevice, claim: Claim) -> dict[str, str]:
    """The configuration of a GPU by field; the claim's values override the class's."""
    config = claim.allocation.config if claim.allocation else ()
    stated = {
        field: str(entry.parameters[field])
        for entry in sorted(config, key=lambda one: one.source != "FromClass")
        if entry.driver == DRIVER and _applies_to(entry, use)
        for field in _CONFIG_ENV
        if entry.parameters.get(field) not in (None, "")
    }
    for field, capacity in _LIMITED.items():
        if field in stated and parse_quantity(stated[field]) > use.published.budget[capacity]:
            stated[field] = str(use.published.budget[capacity])
    return stated


def _capped(stated: dict[str, str], use: ClaimedDevice, enforcement: Enforcement) -> dict[str, str]:
    """The configuration, with limits lowered to what the pool's MPS daemons allow."""
    memory, percent = enforcement.mps_memory, enforcement.mps_threads_percent
    caps = {VRAM_LIMIT_FIELD: memory} if memory else {}
    if percent:
        caps[PERCENT_LIMIT_FIELD] = str(percent)
        caps[TFLOPS_LIMIT_FIELD] = str(use.published.model.tflops * percent // 100)
    for field, cap in caps.items():
        if field in stated and parse_quantity(stated[field]) > parse_quantity(cap):
            stated[field] = cap
    return stated


def _limits(
    use: ClaimedDevice, gpus: Sequence[str] | None, stated: Mapping[str, str]
) -> ShareLimits:
    amounts = {
        field: parse_quantity(stated[field])
        for field in (*_LIMITED, PERCENT_LIMIT_FIELD)
        if field in stated
    }
    percent = amounts.get(PERCENT_LIMIT_FIELD)
    if percent is None and (tflops := amounts.get(TFLOPS_LIMIT_FIELD)):
        whole = use.published.model.tflops
        percent = Quantity(min(tflops.nano * 100 // whole, 100 * NANO))
    uuid = use.published.gpu.uuid
    return ShareLimits(
        device=use.published.device,
        position=gpus.index(uuid) if gpus and uuid in gpus else None,
        vram=amounts.get(VRAM_LIMIT_FIELD),
        compute_percent=percent,
    )


def _text(amount: Quantity) -> str:
    return readable(amount.nano, binary=amount.binary)


def _plain(text: str) -> str:
    """A quantity as a plain number; any other text as it is."""
    try:
        return plain_number(parse_quantity(text).nano)
    except InvalidQuantityError:
        return text
