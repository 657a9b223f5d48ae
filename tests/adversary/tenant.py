"""A tenant with create and update rights in one namespace, and what it may try."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.adversary.admission import User

from dray.api.groups import GROUP_NAME_KEYS, TASK_AFFINITY, TASK_ANTI_AFFINITY
from dray.api.names import (
    ALLOCATED,
    CLAIM_REFERENCE,
    DECISION,
    DEDICATED_TAINT,
    DEFAULT_SCHEDULER,
    DERIVED_FROM_LABEL,
    DEVICE_CLASS,
    DRAY_SCHEDULER,
    GANG_LOSS_POLICY,
    GANG_TIMEOUT,
    GPUPOOL,
    POD_CLAIM_NAME,
    POOL_LABEL,
    SHAPE,
    TEMPLATE_READY,
    TFLOPS_REQUEST,
    VOID,
    VRAM_REQUEST,
)
from dray.kube.memory import MemoryKube
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    POOLS,
    TEMPLATES,
    Object,
)
from tools.simulation.cluster import DEDICATED, SHARED, SPARE, pool_object

NAMESPACE = "team-b"
MOST_ACTIONS = 6
CLAIM_NAMES, POD_NAMES, TEMPLATE_NAMES = ("c0", "c1"), ("p0", "p1"), ("t0",)
POOL_NAMES = (DEDICATED, SHARED, SPARE)
GROUP = "g0"
"""A PodGroup; other tenants have one of this name, too."""
GROUP_SPECS: dict[str, Object] = {
    "one": {"minMember": 1},
    "more than there are": {"minMember": 9, "minTaskMember": {"ps": 3}, "queue": "none"},
    "all of the cluster": {"minMember": 2, "minResources": {"cpu": "9k", "a.b/c": "1"}},
    "nothing": {"minMember": -5, "subGroupPolicy": [{"matchLabelKeys": ["x"], "minSubGroups": 9}]},
    "the highest class": {"minMember": 2, "priorityClassName": "system-node-critical"},
}
FORGED_STATUS: Object = {
    "phase": "Running",
    "running": 99,
    "conditions": [{"type": "Scheduled", "status": "True", "reason": "x", "message": "x"}],
}
FAR = str(7 * 10**12)
"""An attempt of an epoch that is never reached."""


@dataclass(frozen=True)
class Action:
    """One call. ``rest_s``: how long nothing is done after it."""

    what: str
    name: str = ""
    pool: str = ""
    marks: tuple[tuple[str, str | None], ...] = ()
    """Annotations, or labels."""
    claims: tuple[str, ...] = ()
    scheduler: str = DEFAULT_SCHEDULER
    device_class: str = DEVICE_CLASS
    asks: bool = False
    group: str = ""
    """Of a pod: the API of the group that it joins; of a group: its spec, by name."""
    rest_s: float = 0.0


def _actions() -> st.SearchStrategy[Action]:
    rest_s = st.sampled_from([0.0, 0.02, 1.0, 5.0])
    pool = st.sampled_from(["", *POOL_NAMES])
    own = st.sampled_from([DECISION, VOID, ALLOCATED, SHAPE, TEMPLATE_READY])
    mark = st.tuples(own, st.sampled_from(["1", "1000001", FAR, "true", "{}"]))
    pool_mark = st.tuples(st.just(GPUPOOL), st.sampled_from([*POOL_NAMES, None]))
    label = st.tuples(
        st.sampled_from([POOL_LABEL, DERIVED_FROM_LABEL]), st.sampled_from([*POOL_NAMES, None])
    )
    none: Any = st.just(())
    some = st.tuples(mark) | st.tuples(pool_mark)
    device_class = st.sampled_from([DEVICE_CLASS, DEVICE_CLASS, "any.device"])
    claims = st.sampled_from([("c0",), ("c0",), ("c1",), ("c0", "c1"), ("t0",), ()])
    scheduler = st.sampled_from([DEFAULT_SCHEDULER, DRAY_SCHEDULER])
    group = st.sampled_from(["", "", POD_GROUPS.group, NATIVE_POD_GROUPS.group])
    specs = st.sampled_from(list(GROUP_SPECS))
    claim_names, pod_names = st.sampled_from(CLAIM_NAMES), st.sampled_from(POD_NAMES)

    def build(what: str, **prepare: Any) -> st.SearchStrategy[Action]:
        return st.builds(Action, what=st.just(what), rest_s=rest_s, **prepare)

    return st.one_of(
        build(
            "create claim",
            name=claim_names,
            pool=pool,
            marks=none | st.tuples(mark),
            device_class=device_class,
        ),
        build("create template", name=st.just("t0"), pool=pool, marks=none | st.tuples(label)),
        build(
            "create pod",
            name=pod_names,
            pool=pool,
            claims=claims,
            scheduler=scheduler,
            asks=st.booleans(),
            group=group,
        ),
        build("create group", group=specs),
        build("edit group", group=specs),
        build("forge group's status"),
        build("delete group"),
        build("create native group", group=specs),
        build("annotate pod", name=pod_names, marks=some),
        build("annotate pod's status", name=pod_names, marks=some),
        build("annotate claim", name=claim_names, marks=st.tuples(mark)),
        build("label claim", name=claim_names, marks=st.tuples(label)),
        build("own claim", name=claim_names, claims=st.tuples(pod_names)),
        build("lift gates", name=pod_names),
        build("drop finalizers", name=claim_names),
        build("write bindrequest", name=pod_names),
        build("delete pod", name=pod_names),
        build("delete claim", name=claim_names),
        build("administrator makes the spare pool"),
        build("administrator tightens the shared pool"),
    )


SEQUENCES = st.lists(_actions(), min_size=1, max_size=MOST_ACTIONS)


class Tenant:
    """Performs actions. A refusal is an answer like any other."""

    def __init__(self, kube: MemoryKube, *, admission: bool) -> None:
        self._kube = kube
        self._user = User(kube, "mallory", NAMESPACE, admission=admission)

    async def perform(self, action: Action) -> None:
        """One action. Raises DrayError: it was refused."""
        user, name = self._user, action.name
        marks = dict(action.marks)
        match action.what:
            case "create claim":
                await user.create(CLAIMS, _claim(action))
            case "create template":
                await user.create(TEMPLATES, _template(action))
            case "create pod":
                await user.create(PODS, _pod(action))
            case "annotate pod":
                await user.patch(PODS, name, {"metadata": {"annotations": marks}})
            case "annotate pod's status":
                await user.patch(PODS, name, {"metadata": {"annotations": marks}}, "status")
            case "annotate claim":
                await user.patch(CLAIMS, name, {"metadata": {"annotations": marks}})
            case "label claim":
                await user.patch(CLAIMS, name, {"metadata": {"labels": marks}})
            case "own claim":
                pod = await self._kube.get(PODS, action.claims[0], NAMESPACE)
                owner = _owner(action.claims[0], pod["metadata"]["uid"])
                await user.patch(CLAIMS, name, {"metadata": {"ownerReferences": [owner]}})
            case "lift gates":
                await user.patch(PODS, name, {"spec": {"schedulingGates": None}})
            case "drop finalizers":
                await user.patch(CLAIMS, name, {"metadata": {"finalizers": None}})
            case "write bindrequest":
                await user.create(BIND_REQUESTS, _bind_request(name))
            case "delete pod":
                await user.delete(PODS, name)
            case "delete claim":
                await user.delete(CLAIMS, name)
            case "create group":
                await user.create(POD_GROUPS, _group(action))
            case "edit group":
                await user.patch(POD_GROUPS, GROUP, {"spec": GROUP_SPECS[action.group]})
            case "forge group's status":
                await user.patch(POD_GROUPS, GROUP, {"status": FORGED_STATUS})
            case "delete group":
                await user.delete(POD_GROUPS, GROUP)
            case "create native group":
                await user.create(NATIVE_POD_GROUPS, _native_group(action))
            case "administrator makes the spare pool":
                spare = pool_object(SPARE)
                spare["spec"]["allowedNamespaces"] = ["team-a"]
                await self._kube.create(POOLS, spare)
            case "administrator tightens the shared pool":
                only = {"spec": {"allowedNamespaces": ["team-c"]}}
                await self._kube.patch(POOLS, SHARED, only)
            case _:
                raise AssertionError(action.what)


def _requests(action: Action) -> list[Object]:
    exactly = {
        "deviceClassName": action.device_class,
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": {"virtual_tflops": "20", "virtual_vram": "2Gi"}},
    }
    return [{"name": "gpu", "exactly": exactly}]


def _claim(action: Action) -> Object:
    labels = {POOL_LABEL: action.pool} if action.pool else {}
    annotations = {key: value for key, value in action.marks if value is not None}
    return {
        "metadata": {"name": action.name, "labels": labels, "annotations": annotations},
        "spec": {"devices": {"requests": _requests(action)}},
    }


def _template(action: Action) -> Object:
    labels = {POOL_LABEL: action.pool} if action.pool else {}
    labels |= {key: value for key, value in action.marks if value is not None}
    spec = {"devices": {"requests": _requests(action)}}
    return {
        "metadata": {"name": action.name},
        "spec": {"metadata": {"labels": labels}, "spec": spec},
    }


def _pod(action: Action) -> Object:
    asks = {TFLOPS_REQUEST: "20", VRAM_REQUEST: "2Gi"} if action.asks else {}
    annotations = asks | ({GPUPOOL: action.pool} if action.pool else {})
    if action.group == POD_GROUPS.group:
        annotations[GROUP_NAME_KEYS[0]] = GROUP
    entries = []
    for number, name in enumerate(action.claims):
        source = "resourceClaimTemplateName" if name in TEMPLATE_NAMES else "resourceClaimName"
        # The name under which dray's own claims are referred to, or another.
        entries.append({"name": f"g{number}" if number else CLAIM_REFERENCE, source: name})
    used = [{"name": entry["name"]} for entry in entries]
    resources = {"requests": {"cpu": "1"}, **({"claims": used} if used else {})}
    spec = {
        "schedulerName": action.scheduler,
        "containers": [{"name": "app", "image": "app", "resources": resources}],
        "tolerations": [{"key": DEDICATED_TAINT, "operator": "Exists"}],
        **({"resourceClaims": entries} if entries else {}),
    }
    if action.group == NATIVE_POD_GROUPS.group:
        spec["schedulingGroup"] = {"podGroupName": GROUP}
    return {"metadata": {"name": action.name, "annotations": annotations}, "spec": spec}


def _group(action: Action) -> Object:
    annotations = {
        GANG_TIMEOUT: "1ms",
        GANG_LOSS_POLICY: "end",
        TASK_AFFINITY: "a,b;c",
        TASK_ANTI_AFFINITY: ";,;",
    }
    metadata = {"name": GROUP, "annotations": annotations}
    return {"metadata": metadata, "spec": GROUP_SPECS[action.group], "status": FORGED_STATUS}


def _native_group(action: Action) -> Object:
    least = abs(GROUP_SPECS[action.group]["minMember"])
    spec = {
        "schedulingPolicy": {"gang": {"minCount": least}},
        "disruptionMode": {"all": {}},
        "resourceClaims": [{"name": "g1", "resourceClaimName": "c1"}],
        "priority": 10**9,
    }
    return {"metadata": {"name": GROUP}, "spec": spec}


def _owner(name: str, uid: str) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}


def _bind_request(name: str) -> Object:
    return {
        "metadata": {"name": name, "annotations": {POD_CLAIM_NAME: "x"}},
        "spec": {"podUID": "forged", "selectedNode": "n1"},
    }
