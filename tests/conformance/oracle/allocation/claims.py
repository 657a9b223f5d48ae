"""Classes, the claims to allocate, and the claims that hold devices already."""

import random
from dataclasses import dataclass
from typing import Any, Final

from allocation.capacities import asked_of, consumed_of
from allocation.devices import ROOT, TAINT_KEYS
from allocation.fleet import GPU, NIC
from allocation.selectors import make_selector

Json = dict[str, Any]

DRIVER_OF: Final = {"gpu": GPU, "nic": NIC}
_ATTRIBUTES: Final = ("model", "numa", "index", "ecc", "driverVersion")
_OFTEN_EQUAL: Final = ("model", "numa", "ecc")
MOST_RESULTS: Final = 32


@dataclass(frozen=True, slots=True)
class Scene:
    """What the claims are made for."""

    rng: random.Random
    themes: frozenset[str]
    slices: list[Json]

    def drivers(self) -> list[str]:
        """Whose devices there are."""
        return sorted({one["spec"]["driver"] for one in self.slices})

    def drawn(self, theme: str, chance: float) -> bool:
        """Whether ``theme`` is one of the case, and ``chance`` falls this way."""
        return theme in self.themes and self.rng.random() < chance


def make_classes(scene: Scene) -> list[Json]:
    """A class of each driver, and one of any device."""
    return [_class(scene, name) for name in ("gpu", "nic", "any")]


def _class(scene: Scene, name: str) -> Json:
    spec: Json = {}
    driver = DRIVER_OF.get(name)
    if driver is not None:
        spec["selectors"] = [_selector(f'device.driver == "{driver}"')]
    if scene.drawn("class selector", 0.7):
        about = driver or scene.rng.choice(scene.drivers())
        spec.setdefault("selectors", []).append(
            _selector(make_selector(scene.rng, about, scene.themes))
        )
    if scene.drawn("class config", 0.7):
        spec["config"] = [
            {"opaque": _opaque(scene, f"class-{name}-{n}")} for n in range(scene.rng.choice((1, 2)))
        ]
    return {
        "kind": "DeviceClass",
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {"name": name},
        "spec": spec,
    }


def _selector(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def _opaque(scene: Scene, source: str) -> Json:
    driver = scene.rng.choice((GPU, GPU, NIC))
    return {"driver": driver, "parameters": {"from": source, "n": scene.rng.randint(0, 9)}}


def make_claims(scene: Scene) -> list[Json]:
    """The claims of the pod, in order."""
    count = scene.rng.choice((2, 2, 3)) if "several claims" in scene.themes else 1
    return [_claim(scene, n) for n in range(count)]


def _claim(scene: Scene, number: int) -> Json:
    rng = scene.rng
    several = scene.drawn("several requests", 0.8) or "tight" in scene.themes
    requests = [_request(scene, f"r{n}") for n in range(rng.choice((2, 2, 3)) if several else 1)]
    if scene.drawn("many", 0.75):
        _ask_for_many(rng, requests)
    names = _names_of(requests)
    devices: Json = {"requests": requests}
    constraints = [
        _constraint(scene, kind, names)
        for kind in ("matchAttribute", "distinctAttribute")
        if scene.drawn(kind, 0.85) or (kind == "matchAttribute" and scene.drawn("tight", 0.6))
    ]
    if constraints:
        devices["constraints"] = constraints
        _ask_for_pairs(rng, requests)
    if scene.drawn("claim config", 0.8):
        devices["config"] = [
            _with_requests(rng, names, {"opaque": _opaque(scene, "claim")})
            for _ in range(rng.choice((1, 2)))
        ]
    return _claim_of(f"claim-{number}", {"devices": devices}, {})


def _claim_of(name: str, spec: Json, status: Json) -> Json:
    return {
        "kind": "ResourceClaim",
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": spec,
        "status": status,
    }


def _request(scene: Scene, name: str) -> Json:
    if scene.drawn("firstAvailable", 0.7):
        count = scene.rng.choice((2, 2, 3))
        return {
            "name": name,
            "firstAvailable": [
                {"name": f"s{n}", **_wanted(scene, admin=False)} for n in range(count)
            ],
        }
    return {"name": name, "exactly": _wanted(scene, admin=True)}


def _wanted(scene: Scene, *, admin: bool) -> Json:
    """What an exact request and a subrequest have in common."""
    rng = scene.rng
    driver = rng.choice(scene.drivers())
    usual = next(name for name, of in DRIVER_OF.items() if of == driver)
    wanted: Json = {"deviceClassName": rng.choice((usual, usual, usual, "any"))}
    if scene.drawn("missing class", 0.7):
        wanted["deviceClassName"] = "missing"
    if scene.drawn("request selector", 0.75):
        selectors = [make_selector(rng, driver, scene.themes) for _ in range(rng.choice((1, 1, 2)))]
        wanted["selectors"] = [_selector(one) for one in selectors]
    if scene.drawn("All", 0.6):
        wanted["allocationMode"] = "All"
    else:
        wanted["allocationMode"] = "ExactCount"
        more = scene.drawn("count", 0.6) or scene.drawn("tight", 0.5)
        wanted["count"] = rng.choice((2, 2, 3)) if more else 1
    if admin and scene.drawn("admin", 0.7):
        wanted["adminAccess"] = True
    if scene.drawn("taints", 0.55):
        wanted["tolerations"] = [_toleration(rng) for _ in range(rng.choice((1, 1, 2)))]
    if _asks_capacity(scene):
        wanted["capacity"] = {"requests": _asked(scene, driver)}
    return wanted


def _asks_capacity(scene: Scene) -> bool:
    return "capacity" in scene.themes and scene.rng.random() < (
        0.9 if "shared" in scene.themes else 0.3
    )


def _asked(scene: Scene, driver: str) -> Json:
    rng = scene.rng
    keys = ["memory"] if rng.random() < 0.7 else ["memory", "cores"]
    asked = {_written(scene, driver, key): asked_of(rng, key, scene.themes) for key in keys}
    if scene.drawn("wrong capacity key", 0.8):
        asked[rng.choice((f"{driver}/memory", "absent"))] = "1Gi"
    return asked


def _written(scene: Scene, driver: str, key: str) -> str:
    """The capacity's key; with the driver's domain it is another one, unless published so."""
    return f"{driver}/{key}" if scene.drawn("domain", 0.2) else key


def _toleration(rng: random.Random) -> Json:
    toleration: Json = {"operator": rng.choice(("Exists", "Exists", "Equal"))}
    if toleration["operator"] == "Equal" or rng.random() < 0.6:
        toleration["key"] = rng.choice(TAINT_KEYS)
    if toleration["operator"] == "Equal":
        toleration["value"] = rng.choice(("bad", "soon"))
    if rng.random() < 0.4:
        toleration["effect"] = rng.choice(("NoSchedule", "NoExecute"))
        if toleration["effect"] == "NoExecute" and rng.random() < 0.3:
            toleration["tolerationSeconds"] = 60
    return toleration


def _names_of(requests: list[Json]) -> list[str]:
    """How constraints and configuration may call the requests."""
    names = []
    for request in requests:
        names.append(request["name"])
        names += [f"{request['name']}/{sub['name']}" for sub in request.get("firstAvailable", [])]
    return names


def _with_requests(rng: random.Random, names: list[str], entry: Json) -> Json:
    if rng.random() < 0.4:
        return entry
    return {"requests": rng.sample(names, rng.randint(1, min(3, len(names)))), **entry}


def _constraint(scene: Scene, kind: str, names: list[str]) -> Json:
    rng = scene.rng
    attribute = rng.choice(_ATTRIBUTES if kind == "distinctAttribute" else _OFTEN_EQUAL)
    qualified = ROOT if rng.random() < 0.25 else f"{rng.choice(scene.drivers())}/{attribute}"
    return _with_requests(rng, names, {kind: qualified})


def _exact(requests: list[Json]) -> list[Json]:
    """The exact requests for a number of devices, and all such subrequests."""
    found = []
    for request in requests:
        found += request.get("firstAvailable", [request.get("exactly")])
    return [one for one in found if one["allocationMode"] == "ExactCount"]


def _ask_for_pairs(rng: random.Random, requests: list[Json]) -> None:
    """Constraints say nothing about one device."""
    for wanted in _exact(requests):
        if len(requests) == 1 and wanted["count"] == 1 and rng.random() < 0.7:
            wanted["count"] = 2


def _ask_for_many(rng: random.Random, requests: list[Json]) -> None:
    """Ask for more than one claim can hold, in one request or in all of them together."""
    exact = _exact(requests)
    if not exact:
        return
    if len(exact) > 1 and rng.random() < 0.3:
        for wanted in exact:
            wanted["count"] = 17
    else:
        exact[0]["count"] = rng.choice((MOST_RESULTS, MOST_RESULTS + 1, 40))


def make_held(scene: Scene) -> list[Json]:
    """Claims of other pods, and what they hold."""
    if "held" not in scene.themes:
        return []
    held = []
    for one in scene.slices:
        spec = one["spec"]
        for device in spec.get("devices", []):
            if scene.rng.random() < (0.4 if device.get("allowMultipleAllocations") else 0.3):
                held += [_result(scene, spec, device) for _ in range(_shares(scene, device))]
    chosen = held[:8]
    return [_holding(number, result) for number, result in enumerate(chosen)]


def _shares(scene: Scene, device: Json) -> int:
    return scene.rng.choice((1, 2, 3)) if device.get("allowMultipleAllocations") else 1


def _result(scene: Scene, spec: Json, device: Json) -> Json:
    rng = scene.rng
    result: Json = {
        "request": "r0",
        "driver": spec["driver"],
        "pool": spec["pool"]["name"],
        "device": device["name"],
    }
    if device.get("allowMultipleAllocations") and scene.drawn("share held", 0.85):
        result["shareID"] = f"00000000-0000-4000-8000-{rng.randrange(10**12):012d}"
        consumed = {key: consumed_of(rng, key) for key in device["capacity"] if rng.random() < 0.9}
        if consumed:
            result["consumedCapacity"] = consumed
    if scene.drawn("admin", 0.45):
        result["adminAccess"] = True
    return result


def _holding(number: int, result: Json) -> Json:
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "r0", "exactly": exactly}]}}
    return _claim_of(f"other-{number}", spec, {"allocation": {"devices": {"results": [result]}}})
