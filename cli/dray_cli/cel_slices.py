"""Devices to try a selector on, from a file of ResourceSlices or from a cluster."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from dray.api.errors import InvalidInputError
from dray.cel.device import view_from_json
from dray.cel.view import DeviceView
from dray.kube.ports import SLICES
from dray.user_guide_form import yaml_adapter
from dray_cli.files import naming, text_of
from dray_cli.target import connect_kube


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """One device and where it is."""

    name: str
    """``pool/device``."""
    driver: str
    device: dict[str, Any]
    """As in a ResourceSlice."""

    def view(self) -> DeviceView:
        """The device as an expression sees it.

        Raises:
            InvalidInputError: a field has another type than in a ResourceSlice.
        """
        try:
            return view_from_json(self.driver, self.device)
        except InvalidInputError as error:
            raise InvalidInputError(f"device {self.name}: {error}") from None


def _slices_of_text(text: str) -> list[dict[str, Any]]:
    """The ResourceSlices in a stream of documents, also those in Lists.

    Raises:
        InvalidInputError: the text is not YAML, or has no ResourceSlice.
    """
    documents = (yaml_adapter.plain(yaml_adapter.load(part)) for part in yaml_adapter.split(text))
    slices = [found for document in documents for found in _slices(document)]
    if not slices:
        raise InvalidInputError(
            "no ResourceSlice in the input: give the output of "
            "`kubectl get resourceslices -o yaml`, or a file of slices"
        )
    return slices


def slices_of_file(file: TextIO) -> list[dict[str, Any]]:
    """The ResourceSlices in a file or standard input; errors contain the file's name.

    Raises:
        InvalidInputError: the text is not YAML, or has no ResourceSlice.
    """
    text = text_of(file)
    with naming(file):
        return _slices_of_text(text)


def _candidates_of_text(text: str) -> list[SliceDevice]:
    """Every device of the ResourceSlices in a text.

    Raises:
        InvalidInputError: the text is not YAML, or has no ResourceSlice.
    """
    return list(_candidates(_slices_of_text(text)))


def candidates_of_file(file: TextIO) -> list[SliceDevice]:
    """Every device in a file or standard input; errors contain the file's name.

    Raises:
        InvalidInputError: the text is not YAML, or has no ResourceSlice.
    """
    text = text_of(file)
    with naming(file):
        return _candidates_of_text(text)


async def candidates_of_cluster(kubeconfig: str | None) -> tuple[str, list[SliceDevice]]:
    """The server's version, and every device that drivers publish in the cluster.

    Raises:
        KubeUnavailableError, RefusedError: the API server did not answer, or refused this user.
    """
    kube = await connect_kube(kubeconfig)
    try:
        version = await kube.version()
        slices = (await kube.list(SLICES)).objects
    finally:
        await kube.close()
    return version, list(_candidates(slices))


def _slices(document: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        return
    for found in _list(document, "items") or [document]:
        if isinstance(found, dict) and found.get("kind", SLICES.kind) == SLICES.kind:
            if not isinstance(found.get("spec"), dict):
                raise InvalidInputError("a ResourceSlice of the input has no spec")
            yield found


def _candidates(slices: Iterable[dict[str, Any]]) -> Iterator[SliceDevice]:
    for found in slices:
        spec = found["spec"]
        pool = spec.get("pool")
        if not isinstance(pool or {}, dict):
            raise InvalidInputError(f"spec.pool is {type(pool).__name__}, expected an object")
        for device in _list(spec, "devices"):
            if not isinstance(device, dict):
                seen = type(device).__name__
                raise InvalidInputError(f"a device of the input is {seen}, expected an object")
            name = f"{(pool or {}).get('name', '')}/{device.get('name', '')}"
            yield SliceDevice(name, str(spec.get("driver", "")), device)


def _list(within: dict[str, Any], name: str) -> list[Any]:
    found = within.get(name) or []
    if isinstance(found, list):
        return found
    raise InvalidInputError(f"{name} of the input is {type(found).__name__}, expected a list")
