"""The kubelet's protocols in Python, from ``protos/`` of the node-agent's ``kubelet``.

Needs grpcio-tools (the ``dev`` extra).
"""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tools.generate.output import Output

_KUBELET: Final = "services/node-agent/dray_node_agent/kubelet"
_PROTOS: Final = Path(__file__).parents[2] / _KUBELET / "protos"


def files() -> Mapping[str, str]:
    """The message modules, by their names. Raises RuntimeError: the compiler refused a file."""
    # Only the dev extra has it, without type information.
    from grpc_tools import protoc  # type: ignore[import-untyped]

    sources = sorted(map(str, _PROTOS.glob("*.proto")))
    well_known = str(resources.files("grpc_tools") / "_proto")
    with TemporaryDirectory() as target:
        options = [f"-I{_PROTOS}", f"-I{well_known}", f"--python_out={target}"]
        if status := protoc.main(["protoc", *options, *sources]):
            raise RuntimeError(f"protoc failed with status {status} on {sources}")
        return {path.name: path.read_text("utf-8") for path in Path(target).glob("*_pb2.py")}


OUTPUT = Output(f"{_KUBELET}/generated", files, owned="*_pb2.py")
