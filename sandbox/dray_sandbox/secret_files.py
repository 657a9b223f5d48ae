"""Files that only their owner can read."""

import os
from pathlib import Path


def write_secret(path: Path, content: bytes) -> None:
    """Write such a file, independent of the umask."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
