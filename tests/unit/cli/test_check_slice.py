"""``dray check slice``: what keeps devices of a driver's slices from being allocated."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray_cli.check_slice import check

EXAMPLE = (Path(__file__).parents[3] / "examples" / "09-driver" / "slices.yaml").read_text("utf-8")


def checked(text):
    """Exit code, and what is wrong as ``about: text``."""
    done = CliRunner().invoke(check, ["slice", "-f", "-", "-o", "json"], input=text)
    return done.exit_code, [f"{one['about']}: {one['text']}" for one in json.loads(done.stdout)]


def test_the_example_is_right():
    assert checked(EXAMPLE) == (0, [])


@pytest.mark.parametrize(
    ("right", "wrong", "finding"),
    [
        ("nodeName: node-1", "nodeNam: node-1", "slice node-1-tensor-fusion: unknown field"),
        ("name: gpu-1", "name: gpu-0", 'spec.devices[1]: Duplicate value: "gpu-0"'),
        ("name: gpu-1", "name: GPU_1", "spec.devices[1].name: Invalid value"),
        ('value: "312"}\n', 'value: "much"}\n', "slice node-1-tensor-fusion:"),
        ("resourceSliceCount: 1", "resourceSliceCount: 2", "node-1: incomplete"),
        ("allowMultipleAllocations: true", "allowMultipleAllocations: false", ""),
        ("phase: {string: Running}\n", "\n", "gpu-0: attribute phase is missing"),
        ("        virtual_vram: {value: 40Gi}\n", "", "gpu-1: capacity virtual_vram is missing"),
    ],
)
def test_what_is_wrong_is_named(right, wrong, finding):
    code, found = checked(EXAMPLE.replace(right, wrong))
    assert code == 1
    assert finding in "\n".join(found)


def test_devices_of_other_drivers_need_not_have_what_drays_have():
    text = EXAMPLE.replace("tensor-fusion.ai.dra-driver", "gpu.example.com")
    assert checked(text.replace("        virtual_vram: {value: 40Gi}\n", "")) == (0, [])


def test_people_read_a_line_for_each_finding_and_how_many_there_are():
    text = EXAMPLE.replace("resourceSliceCount: 1", "resourceSliceCount: 2")
    done = CliRunner().invoke(check, ["slice", "-f", "-"], input=text)
    assert done.stdout.splitlines() == [
        "NO  pool tensor-fusion.ai.dra-driver/node-1: incomplete: "
        "resourceSliceCount is not the number of its slices",
        "1 slice with 2 devices: 1 wrong",
    ]
