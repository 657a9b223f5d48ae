"""Kubernetes objects from the short form in which scenarios have them; README.md describes it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from dray.api.groups import GROUP_NAME_KEYS, TASK_KEY
from dray.api.names import DEVICE_CLASS, GPU_RESOURCE
from dray.kube.ports import NATIVE_POD_GROUPS, POD_GROUPS, QUEUES, TEMPLATES, Object

FOLDER: Final = Path(__file__).parent
NAMESPACE: Final = "default"
_PREFIX: Final = "tensor-fusion.ai/"
_WHOLE: Final = {"tflops-request": "312", "vram-request": "40Gi"}
_AMOUNTS: Final = {
    0.5: {"tflops-request": "156", "vram-request": "20Gi"},
    0.01: {"tflops-request": "3", "vram-request": "100Mi"},
}
"""Of parts of a GPU."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario as its file has it."""

    name: str
    says: str
    source: str
    nodes: Mapping[str, int]
    """GPUs of each node."""
    steps: tuple[Mapping[str, Any], ...]
    shared: bool = False
    """Whether kube-scheduler binds, because other pods use the nodes."""
    stacks: tuple[str, ...] = ()
    """Control planes on which it runs as well: ``sandbox``, ``real``."""
    placement: str = "CompactFirst"
    options: Mapping[str, Any] | None = None
    """Options of the allocator."""
    default_pool: bool = False
    """Whether it is the default pool. A stack has one at a time."""


def scenarios() -> list[Scenario]:
    """All scenarios, by name."""
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        for number, read in enumerate(yaml.safe_load_all(path.read_text("utf-8"))):
            name = read.pop("name", f"{path.stem}-{number}")
            steps, stacks = tuple(read.pop("steps")), tuple(read.pop("stacks", ()))
            found.append(Scenario(name=name, steps=steps, stacks=stacks, **read))
    return found


def names_of(step: Mapping[str, Any]) -> list[str]:
    """The names of the pods of a step."""
    name, count = step["name"], step.get("count")
    return [name] if count is None else [f"{name}-{number}" for number in range(count)]


def queue(step: Mapping[str, Any]) -> Object:
    """A Queue of Volcano."""
    status = {"state": step.get("state", "Open")}
    return _object(QUEUES, step["name"], spec=step.get("spec", {}), status=status)


def group(step: Mapping[str, Any]) -> Object:
    """A PodGroup of Volcano."""
    known = ("name", "annotations")
    spec = {name: value for name, value in step.items() if name not in known}
    return _object(POD_GROUPS, step["name"], spec=spec, annotations=step.get("annotations"))


def native(step: Mapping[str, Any]) -> Object:
    """A PodGroup of Kubernetes."""
    spec = {name: value for name, value in step.items() if name not in ("name", "minCount")}
    spec["schedulingPolicy"] = {"gang": {"minCount": step["minCount"]}}
    return _object(NATIVE_POD_GROUPS, step["name"], spec=spec)


def claim_template(step: Mapping[str, Any]) -> Object:
    """A template of claims for whole GPUs of dray."""
    capacity = {"requests": {"virtual_tflops": "312", "virtual_vram": "40Gi"}}
    exactly = {
        "deviceClassName": DEVICE_CLASS,
        "count": step.get("gpus", 1),
        "capacity": capacity,
    }
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return _object(TEMPLATES, step["name"], spec={"spec": spec})


def job(step: Mapping[str, Any]) -> Object:
    """A Job, or another controller that says how many pods it has."""
    metadata = {"name": step["name"], "namespace": NAMESPACE, "uid": step["uid"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": step["spec"]}


def pods(step: Mapping[str, Any], pool: str) -> Iterator[Object]:
    """Pods with annotations as users write them."""
    for number, name in enumerate(names_of(step)):
        yield _pod(step, name, number, pool)


def _pod(step: Mapping[str, Any], name: str, number: int, pool: str) -> Object:
    gpus = step.get("gpus", 1)
    annotations = dict(step.get("annotations", {}))
    labels = {key: _text(value, number) for key, value in step.get("labels", {}).items()}
    if gpus and not step.get("unmodified"):
        amounts = _AMOUNTS.get(gpus, _WHOLE)
        more = {"gpu-count": str(gpus)} if gpus > 1 else {}
        asked = {"gpupool": step.get("pool", pool), **amounts, **more}
        annotations |= {_PREFIX + key: value for key, value in asked.items()}
    elif step.get("in_pool"):
        annotations[_PREFIX + "gpupool"] = step.get("pool", pool)
    if joined := step.get("group"):
        annotations[step.get("by", GROUP_NAME_KEYS[0])] = joined
    if task := step.get("task"):
        annotations[TASK_KEY] = task
    spec: dict[str, Any] = {"containers": [_container(step)], **step.get("spec", {})}
    if scheduler := step.get("scheduler"):
        spec["schedulerName"] = scheduler
    if joined := step.get("native"):
        spec["schedulingGroup"] = {"podGroupName": joined}
    if shared := step.get("shares"):
        spec["resourceClaims"] = [shared]
    if gate := step.get("gate"):
        spec["schedulingGates"] = [{"name": gate}]
    if "priority" in step:
        spec["priority"] = step["priority"]
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": annotations, "labels": labels}
    if owner := step.get("owner"):
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(step: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"name": "main", "image": "app"}
    if requests := step.get("requests"):
        made["resources"] = {"requests": requests}
    if step.get("unmodified") and (gpus := step.get("gpus", 1)):
        made.setdefault("resources", {})["limits"] = {GPU_RESOURCE: str(gpus)}
    return made


def _text(value: Any, number: int) -> str:
    """A label; ``{half}`` counts pairs of pods."""
    return str(value).replace("{number}", str(number)).replace("{half}", str(number // 2))


def _object(resource: Any, name: str, **parts: Any) -> Object:
    metadata: dict[str, Any] = {"name": name}
    if resource is not QUEUES:
        metadata["namespace"] = NAMESPACE
    if annotations := parts.pop("annotations", None):
        metadata["annotations"] = annotations
    version = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**version, "metadata": metadata, **parts}
