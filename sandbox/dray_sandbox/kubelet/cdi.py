"""Resolves CDI device ids from the specifications in a folder, as a container runtime does.

As strict as the reference loader: unknown fields, unknown versions and a device that two files
define are errors.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dray_sandbox.kubelet.claims import ContainerNotCreatedError

_SPEC_FIELDS = {"cdiVersion", "kind", "devices", "containerEdits", "annotations"}
_DEVICE_FIELDS = {"name", "containerEdits", "annotations"}
_EDIT_FIELDS = {"env", "deviceNodes", "mounts", "hooks", "intelRdt", "additionalGids"}
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
_DIGIT_NAMES_SINCE = "0.5.0"


def resolve(ids: Iterable[str], folder: Path) -> dict[str, str]:
    """The environment that the devices add to a container; later ones override earlier ones.

    Raises:
        ContainerNotCreatedError: an id has no device, or a specification is invalid.
    """
    wanted = list(ids)
    if not wanted:
        return {}
    devices = _load(folder)
    if missing := [one for one in wanted if one not in devices]:
        raise ContainerNotCreatedError(
            f"unresolvable CDI devices {', '.join(missing)}: "
            f"{folder} has {', '.join(sorted(devices)) or 'no devices'}"
        )
    env: dict[str, str] = {}
    for one in wanted:
        env |= _environment(one, devices[one])
    return env


def _load(folder: Path) -> dict[str, list[Mapping[str, Any]]]:
    """Container edits by fully qualified device name."""
    devices: dict[str, list[Mapping[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        spec = _read(path)
        for device in spec["devices"]:
            name = f"{spec['kind']}={device['name']}"
            if name in devices:
                raise ContainerNotCreatedError(f"CDI device {name} is defined twice in {folder}")
            devices[name] = [spec.get("containerEdits") or {}, device["containerEdits"]]
    return devices


def _read(path: Path) -> dict[str, Any]:
    try:
        spec = json.loads(path.read_text())
    except FileNotFoundError:
        return {"kind": "absent/absent", "devices": []}  # removed since it was listed
    except ValueError as error:
        raise ContainerNotCreatedError(f"CDI specification {path} is not JSON: {error}") from error
    problems = [*_unknown(spec, _SPEC_FIELDS, "the specification")]
    if spec.get("cdiVersion") not in _VERSIONS:
        problems.append(f"version {spec.get('cdiVersion')!r}")
    if not _KIND.fullmatch(str(spec.get("kind"))):
        problems.append(f"kind {spec.get('kind')!r}")
    for device in spec.get("devices") or ():
        problems.extend(_device_problems(device, str(spec.get("cdiVersion"))))
    if problems:
        raise ContainerNotCreatedError(
            f"CDI specification {path} is invalid: {'; '.join(problems)}"
        )
    return dict(spec)


def _device_problems(device: Mapping[str, Any], version: str) -> Iterable[str]:
    name = str(device.get("name"))
    yield from _unknown(device, _DEVICE_FIELDS, f"device {name}")
    yield from _unknown(device.get("containerEdits") or {}, _EDIT_FIELDS, f"edits of {name}")
    if not _NAME.fullmatch(name):
        yield f"device name {name!r}"
    too_old = _VERSIONS[: _VERSIONS.index(_DIGIT_NAMES_SINCE)]
    if name[:1].isdigit() and version in too_old:
        yield f"device name {name!r} begins with a digit, which needs {_DIGIT_NAMES_SINCE}"
    if not device.get("containerEdits"):
        yield f"device {name} has no edits"


def _unknown(value: Mapping[str, Any], known: set[str], where: str) -> Iterable[str]:
    for field in sorted(set(value) - known):
        yield f"unknown field {field} in {where}"


def _environment(device: str, edits: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    env: dict[str, str] = {}
    for edit in edits:
        for node in edit.get("deviceNodes") or ():
            if not Path(node.get("hostPath") or node["path"]).exists():
                raise ContainerNotCreatedError(
                    f"CDI device {device} needs {node['path']}: no such file"
                )
        for entry in edit.get("env") or ():
            key, _, value = entry.partition("=")
            env[key] = value
    return env
