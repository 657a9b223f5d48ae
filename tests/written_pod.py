"""The pod of the chapter on device plugins, as it is written there."""

from pathlib import Path

_CHAPTER = Path(__file__).parents[1] / "examples/seed/002-gpu-clusters-zh.txt"


def written_pod() -> str:
    """Its YAML."""
    text = _CHAPTER.read_text()
    start = text.index("apiVersion: v1\nkind: Pod")
    return text[start : text.index("nvidia.com/gpu: 1", start) + len("nvidia.com/gpu: 1")] + "\n"
