"""Writes ``generated/`` from ``protos/``: ``python -m dray_node_agent.kubelet.generate``.

Needs grpcio-tools (the ``dev`` extra). A test compares the committed code with this output.
"""

import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

HERE = Path(__file__).parent
PROTOS = HERE / "protos"
GENERATED = HERE / "generated"


def generate(target: Path) -> tuple[Path, ...]:
    """Write the message modules into ``target``; the files written, sorted.

    Raises:
        RuntimeError: the compiler refused a file.
    """
    # Only the dev extra has it, without type information.
    from grpc_tools import protoc  # type: ignore[import-untyped]

    sources = sorted(PROTOS.glob("*.proto"))
    well_known = str(resources.files("grpc_tools") / "_proto")
    status = protoc.main(
        ["protoc", f"-I{PROTOS}", f"-I{well_known}", f"--python_out={target}", *map(str, sources)]
    )
    if status != 0:
        raise RuntimeError(f"protoc failed with status {status} on {[s.name for s in sources]}")
    return tuple(target / f"{source.stem}_pb2.py" for source in sources)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the committed modules and print their names."""
    if arguments:
        print(f"usage: python -m {__spec__.name if __spec__ else 'generate'}", file=sys.stderr)
        return 2
    for path in generate(GENERATED):
        print(path.relative_to(HERE))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
