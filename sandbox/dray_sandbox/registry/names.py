"""Names of images, as container runtimes complete them. Pure."""

from dataclasses import dataclass

from dray.api.errors import InvalidInputError

_DEFAULT_REGISTRY = "docker.io"
_DEFAULT_FOLDER = "library"
_DEFAULT_TAG = "latest"


@dataclass(frozen=True, slots=True)
class ImageName:
    """A complete name, such as ``docker.io/library/busybox:latest``."""

    registry: str
    repository: str
    tag: str

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}:{self.tag}"


def parse_image_name(text: str) -> ImageName:
    """The complete form of a name that people write: ``my-app``, ``nvidia/cuda:12.0-base``.

    Raises:
        InvalidInputError: it is empty, or has a digest.
    """
    if not text or "@" in text:
        raise InvalidInputError(f"image name {text!r}: expected [REGISTRY/]NAME[:TAG]")
    path, colon, tag = text.rpartition(":")
    if not colon or "/" in tag:  # the colon is before a registry's port
        path, tag = text, _DEFAULT_TAG
    first, slash, rest = path.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        registry, repository = first, rest
    else:
        registry, repository = _DEFAULT_REGISTRY, path
    if registry == _DEFAULT_REGISTRY and "/" not in repository:
        repository = f"{_DEFAULT_FOLDER}/{repository}"
    return ImageName(registry, repository, tag)
