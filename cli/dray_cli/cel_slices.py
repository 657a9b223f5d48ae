"""Devices to try a selector on: of a file of ResourceSlices, or of a cluster."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dray.cel.device import DeviceView, view_from_json
from dray.domain.errors import InvalidInputError
from dray.kube.ports import SLICES
from dray.seed import yaml_door
from dray_cli.target import connect_kube


@dataclass(frozen=True, slots=True)
class Candidate:
    """One device and where it is."""

    name: str
    """``pool/device``."""
    driver: str
    device: dict[str, Any]
    """As in a ResourceSlice."""

    def view(self) -> DeviceView:
        """What an expression sees of it."""
        return view_from_json(self.driver, self.device)


def candidates_of_text(text: str) -> list[Candidate]:
    """Every device in the ResourceSlices (Lists of them too) of a stream of documents.

    Raises:
        InvalidInputError: it is no YAML, or holds no ResourceSlice.
    """
    documents = (yaml_door.plain(yaml_door.load(part)) for part in yaml_door.split(text))
    slices = [found for document in documents for found in _slices(document)]
    if not slices:
        raise InvalidInputError(
            "no ResourceSlice in the input: give the output of "
            "`kubectl get resourceslices -o yaml`, or a file of slices"
        )
    return list(_candidates(slices))


async def candidates_of_cluster(kubeconfig: str | None) -> tuple[str, list[Candidate]]:
    """The version of the server, and every device that its drivers publish.

    Raises:
        KubeUnavailableError, RefusedError: the API did not answer, or not to us.
    """
    kube = await connect_kube(kubeconfig)
    try:
        version = await kube.version()
        slices = (await kube.list(SLICES)).objects
    finally:
        await kube.close()
    return version, list(_candidates(slices))


def _slices(document: Any) -> Iterator[dict[str, Any]]:
    for found in document.get("items") or [document] if isinstance(document, dict) else []:
        if isinstance(found, dict) and found.get("kind", SLICES.kind) == SLICES.kind:
            if not isinstance(found.get("spec"), dict):
                raise InvalidInputError("a ResourceSlice of the input has no spec")
            yield found


def _candidates(slices: Iterable[dict[str, Any]]) -> Iterator[Candidate]:
    for found in slices:
        spec = found["spec"]
        pool = (spec.get("pool") or {}).get("name", "")
        for device in spec.get("devices") or []:
            name = f"{pool}/{device.get('name', '')}"
            yield Candidate(name, str(spec.get("driver", "")), device)
