"""Claims and slices: each field of the user guide's form becomes one that Kubernetes accepts."""

import pytest

from dray.api.errors import InvalidInputError
from dray.user_guide_form.documents import convert

TEMPLATE = """\
apiVersion: resource.k8s.io/v1beta2
kind: ResourceClaimTemplate
metadata: {name: t}
spec:
  spec:
    devices:
      requests:
"""


def requests(text):
    conversion = convert(TEMPLATE + text)
    return conversion.objects[0]["spec"]["spec"]["devices"]["requests"], conversion


def test_fields_next_to_exactly_move_inside():
    found, conversion = requests("""\
      - name: r
        deviceClassName: other.example.com
        allocationMode: All
        count: 2
""")
    assert found == [
        {
            "name": "r",
            "exactly": {
                "deviceClassName": "other.example.com",
                "allocationMode": "All",
                "count": 2,
            },
        }
    ]
    assert any("moved into exactly" in note.text for note in conversion.notes)


def test_the_class_is_added_and_the_selector_becomes_a_list():
    found, _ = requests("""\
      - name: r
        exactly:
          selector: {cel: {expression: 'device.attributes["qos"] == "high"'}}
""")
    exactly = found[0]["exactly"]
    assert exactly["deviceClassName"] == "tensor-fusion.ai.dra-driver"
    expression = exactly["selectors"][0]["cel"]["expression"]
    assert expression.startswith('has(device.attributes["tensor-fusion.ai.dra-driver"].qos)')


def test_subrequests_are_converted_where_they_stand():
    found, _ = requests("""\
      - name: r
        firstAvailable:
          - name: a
            selector: {cel: {expression: "true"}}
          - {name: b, deviceClassName: other.example.com}
""")
    first, second = found[0]["firstAvailable"]
    assert first["deviceClassName"] == "tensor-fusion.ai.dra-driver"
    assert first["selectors"] == [{"cel": {"expression": "true"}}]
    assert second == {"name": "b", "deviceClassName": "other.example.com"}


def test_selectors_of_other_classes_are_not_read():
    found, _ = requests("""\
      - name: r
        exactly:
          deviceClassName: other.example.com
          selectors: [{cel: {expression: 'device.attributes["quota"] == "x"'}}]
""")
    expression = found[0]["exactly"]["selectors"][0]["cel"]["expression"]
    assert expression == 'device.attributes["quota"] == "x"'


def test_stated_capacity_is_kept_and_empty_capacity_goes():
    found, conversion = requests("""\
      - name: a
        exactly: {capacity: {requests: {vram: 1Gi}}}
      - name: b
        exactly: {capacity: {requests: {}}}
""")
    assert found[0]["exactly"]["capacity"] == {"requests": {"vram": "1Gi"}}
    assert "capacity" not in found[1]["exactly"]
    assert any("takes whole" in note.text for note in conversion.notes)


def test_contradicting_values_are_refused():
    with pytest.raises(InvalidInputError, match="count is set next to exactly and inside"):
        requests("      - {name: r, count: 1, exactly: {count: 2}}\n")


def test_a_wrong_expression_is_refused_with_its_place():
    with pytest.raises(InvalidInputError, match=r"document 1: .*t: .*selectors\[0\].*quota"):
        requests("""\
      - name: r
        exactly:
          selector: {cel: {expression: 'device.attributes["quota"] == "x"'}}
""")


SLICE = """\
# inventory
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata:
  name: s
spec:
  driver: {driver}
  nodeName: node-1
  pool: {{name: gold, generation: 1, resourceSliceCount: 1}}
  devices:
  - name: gpu-0  # the first
    attributes: {{index: {{intValue: 3}}, ecc: {{boolValue: true}}, v: {{versionValue: 1.2.3}}}}
    capacity:
      tflops: {{value: 312}}
      vram: {{value: 40Gi}}  # HBM
    # shared
    allowMultipleAllocations: {shared}
"""


def slice_of(driver="tensor-fusion.ai.dra-driver", shared="true"):
    return convert(SLICE.format(driver=driver, shared=shared))


def test_a_slice_sells_the_virtual_pair_only():
    device = slice_of().objects[0]["spec"]["devices"][0]
    capacity = device["capacity"]
    assert list(capacity) == ["tflops", "virtual_tflops", "vram", "virtual_vram"]
    assert capacity["vram"]["requestPolicy"] == {"default": "0", "validValues": ["0"]}
    assert capacity["virtual_vram"] == {
        "value": "40Gi",
        "requestPolicy": {"default": "40Gi", "validRange": {"min": "1"}},
    }


def test_the_pool_becomes_the_node_and_stays_an_attribute():
    spec = slice_of().objects[0]["spec"]
    assert spec["pool"]["name"] == "node-1"
    assert spec["devices"][0]["attributes"] == {
        "index": {"int": 3},
        "ecc": {"bool": True},
        "v": {"version": "1.2.3"},
        "pool_name": {"string": "gold"},
    }


def test_exclusive_devices_get_no_request_policy():
    device = slice_of(shared="false").objects[0]["spec"]["devices"][0]
    assert device["capacity"] == {"tflops": {"value": 312}, "vram": {"value": "40Gi"}}


def test_pools_and_capacities_of_other_drivers_stay():
    spec = slice_of("gpu.example.com").objects[0]["spec"]
    assert spec["pool"]["name"] == "gold"
    assert spec["devices"][0]["attributes"]["index"] == {"int": 3}
    assert "requestPolicy" not in spec["devices"][0]["capacity"]["vram"]


def test_comments_and_indentation_are_kept():
    text = slice_of().text
    for comment in ("# inventory", "# the first", "# HBM", "    # shared"):
        assert comment in text
    assert "\n  - name: gpu-0" in text
    assert text.index("# shared") > text.index("virtual_vram")
