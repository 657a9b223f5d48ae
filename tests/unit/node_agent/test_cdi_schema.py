"""Every CDI file that the node-agent writes is one by the rules of the CDI specification.

The schema says what the specification says of a file: which fields there are, which are required,
and what their values look like (cncf-tags/container-device-interface, SPEC.md).
"""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace
from tests.nvml_shim.building import VERSION, Machine
from tests.unit.node_agent.test_driver_files import GENERATED
from tests.unit.node_agent.test_preparing_rules import claim, limits, result

from dray.api.enforcement import ENFORCERS, NOTHING_NAMED, Enforcement
from dray_node_agent.decisions.claim_devices import device_uses, prepared_claim
from dray_node_agent.decisions.gpus import GpuSnapshot
from dray_node_agent.decisions.inventory import NodeInventory, NodeState
from dray_node_agent.gpus.driver_files import DriverFiles
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus


def an_object(required: str = "", **properties: Any) -> dict[str, Any]:
    """A schema of an object with these fields and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def a_list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


TEXT = {"type": "string", "minLength": 1}
NUMBER = {"type": "integer", "minimum": 0}
PATH = {"type": "string", "pattern": "^/"}
VARIABLES = a_list_of({"type": "string", "pattern": "^[^=\x00]+="})
HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
EDITS = an_object(
    env=VARIABLES,
    deviceNodes=a_list_of(
        an_object(
            "path",
            path=PATH,
            hostPath=PATH,
            type={"enum": ["b", "c", "u", "p"]},
            major={"type": "integer"},
            minor={"type": "integer"},
            fileMode=NUMBER,
            permissions={"type": "string", "pattern": "^[rwm]{1,3}$"},
            uid=NUMBER,
            gid=NUMBER,
        )
    ),
    mounts=a_list_of(
        an_object(
            "hostPath containerPath",
            hostPath=PATH,
            containerPath=PATH,
            options=a_list_of(TEXT),
            type=TEXT,
        )
    ),
    hooks=a_list_of(
        an_object(
            "hookName path",
            hookName={"enum": list(HOOKS)},
            path=PATH,
            args=a_list_of({"type": "string"}),
            env=VARIABLES,
            timeout=NUMBER,
        )
    ),
    additionalGids=a_list_of({"type": "integer", "minimum": 1}),
    intelRdt={"type": "object"},
    netDevices=a_list_of(an_object("hostInterfaceName name", hostInterfaceName=TEXT, name=TEXT)),
)
ANNOTATIONS = {"type": "object", "additionalProperties": {"type": "string"}}
SCHEMA = an_object(
    "cdiVersion kind devices",
    cdiVersion={"enum": ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"]},
    kind={
        "type": "string",
        "pattern": "^[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]$",
    },
    annotations=ANNOTATIONS,
    devices={
        "type": "array",
        "minItems": 1,
        "items": an_object(
            "name containerEdits",
            name={"type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$"},
            annotations=ANNOTATIONS,
            containerEdits={**EDITS, "minProperties": 1},
        ),
    },
    containerEdits=EDITS,
)


def spec_of(snapshot: GpuSnapshot, enforcement: Enforcement = NOTHING_NAMED) -> dict[str, Any]:
    inventory = NodeInventory(snapshot, NodeState("n1", enforcement=enforcement))
    first = next(iter(inventory.published_gpus))
    limited = limits(
        kind="GPUShareConfig", vramLimit="9Gi", computePercentLimit="30", container="app"
    )
    made = claim(result(first), config=(replace(limited, requests=("gpu",)),))
    uses = device_uses(made, made.uid, "n1", inventory.published_gpus)
    return prepared_claim(made, uses, inventory, "").cdi


SIMULATED = SimulatedGpus("n1", "A100", 2, stand_in=Path("/dev/fuse")).read()


@pytest.mark.parametrize("enforcer", ENFORCERS)
def test_a_claims_file_is_valid_with_every_enforcer(enforcer):
    jsonschema.validate(spec_of(SIMULATED, Enforcement(enforcer=enforcer)), SCHEMA)


def test_a_file_with_a_drivers_files_is_valid(tmp_path):
    machine = Machine(tmp_path)
    (machine.root / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    machine.install_driver()
    edits = DriverFiles(machine.root).driver_edits(VERSION)
    spec = spec_of(replace(SIMULATED, driver_edits=dict(edits)))
    jsonschema.validate(spec, SCHEMA)
    assert spec["containerEdits"]["mounts"]


def test_a_file_with_what_nvidia_ctk_generates_is_valid():
    gpu = replace(SIMULATED.gpus[0], edits=GENERATED["devices"][0]["containerEdits"])
    snapshot = replace(SIMULATED, gpus=(gpu,), driver_edits=GENERATED["containerEdits"])
    jsonschema.validate(spec_of(snapshot), SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "gpu"},
        {"devices": []},
        {"devices": [{"name": "a"}]},
        {"devices": [{"name": "-a", "containerEdits": {"env": ["A=b"]}}]},
        {"containerEdits": {"env": ["A"]}},
        {"containerEdits": {"mounts": [{"hostPath": "/a"}]}},
        {"containerEdits": {"deviceNodes": [{"path": "dev"}]}},
        {"containerEdits": {"unknown": []}},
        {"cdiVersion": "2.0.0"},
    ],
)
def test_the_schema_refuses_what_a_runtime_refuses(wrong):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**spec_of(SIMULATED), **wrong}, SCHEMA)
