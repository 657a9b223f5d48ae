"""Whole files: versions, claims, slices, lists, comments, and what passes through."""

import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dray.domain.errors import InvalidInputError
from dray.seed import yaml_door
from dray.seed.documents import convert

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


def test_fields_beside_exactly_move_inside():
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
    with pytest.raises(InvalidInputError, match="count stands beside exactly and inside"):
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


def test_other_documents_come_back_byte_for_byte():
    text = (
        "# a comment alone\n---\napiVersion: v1\nkind:   Pod\nmetadata: {name:  x}\n"
        "--- # inline\n- just\n- a list\n---\nplain text\n---\n"
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\nspec: {}\n...\n"
    )
    conversion = convert(text)
    assert conversion.text == text
    assert conversion.notes == ()


def test_only_the_changed_document_of_a_stream_changes():
    pod = "apiVersion: v1\nkind:   Pod\n"
    template = TEMPLATE + "      - {name: r, exactly: {deviceClassName: c}}\n"
    text = convert(f"{pod}---\n{template}---\n{pod}").text
    assert text.startswith(f"{pod}---\napiVersion: resource.k8s.io/v1\n")
    assert text.endswith(f"---\n{pod}")


def test_items_of_lists_are_converted():
    text = """\
apiVersion: v1
kind: List
items:
- apiVersion: resource.k8s.io/v1beta2
  kind: DeviceClass
  metadata: {name: c}
  spec: {selectors: [{cel: {expression: 'device.driver == "x"'}}]}
- {apiVersion: v1, kind: Pod}
"""
    conversion = convert(text)
    assert [item["apiVersion"] for item in conversion.objects[0]["items"]] == [
        "resource.k8s.io/v1",
        "v1",
    ]
    assert convert(conversion.text).text == conversion.text


def test_json_is_yaml_too():
    found = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "ResourceClaim", "spec": {}}
    conversion = convert(json.dumps(found))
    assert conversion.objects == ({**found, "apiVersion": "resource.k8s.io/v1"},)


VALID = [
    """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice   # as its author wants it
metadata: {name: s}
spec:
    driver: tensor-fusion.ai.dra-driver
    nodeName: node-1
    pool: {name: gold, generation: 1, resourceSliceCount: 1}
    devices: [{name: a, allowMultipleAllocations: true, capacity: {vram: {value: 1Gi}}}]
""",
    """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t, labels: {tensor-fusion.ai/resource-claim-template: "true"}}
spec: {spec: {devices: {requests: [{name:   r, exactly: {
  deviceClassName: tensor-fusion.ai.dra-driver, capacity: {requests: {}}}}]}}}
""",
]


@pytest.mark.parametrize("text", VALID)
def test_valid_objects_come_back_byte_for_byte_with_a_warning_about_traps(text):
    conversion = convert(text)
    assert conversion.text == text
    assert len(conversion.notes) == 2
    assert all(note.is_warning for note in conversion.notes)


def test_line_ends_and_document_ends_are_kept():
    text = "apiVersion: resource.k8s.io/v1beta2\nkind: DeviceClass\n...\na: 1\n...\n"
    expected = text.replace("v1beta2", "v1")
    assert convert(text).text == expected
    assert convert(text.replace("\n", "\r\n")).text == expected.replace("\n", "\r\n")


def test_json_holds_what_kubectl_reads():
    text = "a: 0644\nb: on\nc: 'on'\nd: 2025-04-08T21:55:32Z\ne: 10\nf: 'No'\ng: 089\nh: No\n"
    assert convert(text).objects == (
        {
            "a": 0o644,
            "b": True,
            "c": "on",
            "d": "2025-04-08T21:55:32Z",
            "e": 10,
            "f": "No",
            "g": 89,
            "h": False,
        },
    )


def test_headings_of_kubectl_describe_become_the_fields_of_a_node():
    text = "apiVersion: v1\nkind: Node\nStatus:  # now\n  Capacity: {cpu: 2}\n"
    assert convert(text).objects[0]["status"] == {"capacity": {"cpu": 2}}
    assert "status:  # now" in convert(text).text
    small = "apiVersion: v1\nkind: Node\nstatus: {capacity: {cpu: 2}}\n"
    assert convert(small).text == small


def test_older_versions_are_left_with_a_warning():
    text = "apiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass\n"
    conversion = convert(text)
    assert conversion.text == text
    assert conversion.notes[0].is_warning


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "document 1: not YAML"),
        ("a: 1\n---\na: b: c", "document 2: not YAML"),
        (
            "kind: DeviceClass\napiVersion: resource.k8s.io/v1beta2\nspec: {}\nspec: {}\n",
            "found duplicate key",
        ),
        ("[" * 500, "document 1: nested too deeply"),
        ("&l {kind: List, items: [*l]}", "document 1: aliases nest it in more than"),
        ("a: !!int x", "document 1: a value is not what its tag says"),
        ("!!set x", "document 1: a value is not what its tag says"),
    ],
)
def test_what_is_no_yaml_is_refused(text, reason):
    with pytest.raises(InvalidInputError, match=reason):
        convert(text)


def test_anchors_may_be_named_twice():
    assert convert("a: &x 1\nb: *x\nc: &x 2\nd: *x\n").objects == (
        {"a": 1, "b": 1, "c": 2, "d": 2},
    )


def test_aliases_can_not_blow_a_file_up(monkeypatch):
    monkeypatch.setattr(yaml_door, "_MOST_VALUES", 1000)
    tens = (f"{b}: &{b} [{','.join(['*' + a] * 10)}]\n" for a, b in pairwise("abcdef"))
    with pytest.raises(InvalidInputError, match="document 1: aliases blow it up"):
        convert("a: &a [1]\n" + "".join(tens))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "---\n",
        "null\n",
        "kind: ResourceClaim\n",
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nspec: []\n",
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nspec: {devices: [1, {}, null]}\n",
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: text\n",
        "apiVersion: 7\nkind: List\nitems: {}\n",
    ],
)
def test_odd_documents_pass_through(text):
    assert convert(text).text == text


CEL = st.sampled_from(
    ["true", 'device.attributes["model"] == "A100"', 'device.driver == "x"', "1 < 2 // why"]
).map(lambda text: {"cel": {"expression": text}})
CLASS = st.sampled_from(["tensor-fusion.ai.dra-driver", "other.example.com"])
EXACTLY = st.fixed_dictionaries(
    {},
    optional={
        "deviceClassName": CLASS,
        "selectors": st.lists(CEL, max_size=2),
        "count": st.integers(1, 3),
        "capacity": st.sampled_from([{"requests": {}}, {"requests": {"vram": "1Gi"}}]),
    },
)
REQUEST = st.one_of(
    st.builds(lambda exactly: {"name": "r", "exactly": exactly}, EXACTLY),
    st.builds(
        lambda beside, exactly: {"name": "r", **beside, "exactly": exactly},
        st.fixed_dictionaries({"allocationMode": st.just("All")}, optional={"selector": CEL}),
        EXACTLY.filter(lambda inside: "selectors" not in inside),
    ),
    EXACTLY.map(lambda flat: {"name": "r", **flat}),
    st.builds(lambda part: {"name": "r", "firstAvailable": [{"name": "p", **part}]}, EXACTLY),
)
VALUE = st.sampled_from([{"string": "a"}, {"stringValue": "a"}, {"intValue": 1}, {"bool": True}])
AMOUNT = st.sampled_from(
    [{"value": "1Gi"}, {"value": "1", "requestPolicy": {"default": "0", "validValues": ["0"]}}]
)
DEVICE = st.fixed_dictionaries(
    {"name": st.just("d")},
    optional={
        "attributes": st.dictionaries(st.sampled_from(["model", "pool_name"]), VALUE),
        "capacity": st.dictionaries(st.sampled_from(["tflops", "vram", "virtual_vram"]), AMOUNT),
        "allowMultipleAllocations": st.booleans(),
    },
)
LABELS = st.dictionaries(
    st.just("tensor-fusion.ai/resource-claim-template"), st.just("true"), max_size=1
)
OBJECT = st.one_of(
    st.builds(
        lambda labels, requests: {
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "t", "labels": labels},
            "spec": {"spec": {"devices": {"requests": requests}}},
        },
        LABELS,
        st.lists(REQUEST, max_size=2),
    ),
    st.builds(
        lambda driver, pool, devices: {
            "kind": "ResourceSlice",
            "metadata": {"name": "s"},
            "spec": {
                "driver": driver,
                "nodeName": "node",
                "pool": {"name": pool},
                "devices": devices,
            },
        },
        CLASS,
        st.sampled_from(["node", "gold"]),
        st.lists(DEVICE, max_size=2),
    ),
    st.just({"kind": "Pod", "spec": {"containers": []}}),
)
DOCUMENTS = st.lists(
    st.builds(
        lambda version, content: {"apiVersion": f"resource.k8s.io/{version}", **content},
        st.sampled_from(["v1", "v1beta2"]),
        OBJECT,
    ),
    min_size=1,
    max_size=3,
)


def _in_block_style(content, indent=""):
    """As YAML that a person would write, with a comment behind every key and dash."""
    if isinstance(content, dict) and content:
        pairs = content.items()
        lines = [f"{indent}{key}:{_in_block_style(value, indent + '  ')}" for key, value in pairs]
        return ("  # why\n" if indent else "") + "".join(lines)
    if isinstance(content, list) and content:
        return "  # many\n" + "".join(_item(item, indent) for item in content)
    return f" {json.dumps(content)}\n"


def _item(item, indent):
    text = _in_block_style(item, indent + "  ")
    return f"{indent}-  # one\n{text.partition(chr(10))[2]}" if "#" in text else f"{indent}-{text}"


@settings(deadline=None, max_examples=50)
@given(DOCUMENTS, st.booleans())
def test_conversion_is_idempotent_and_leaves_no_trace_of_the_seed(objects, as_list):
    listed = [{"apiVersion": "v1", "kind": "List", "items": objects}] if as_list else objects
    text = "---\n".join(map(_in_block_style, listed))
    once = convert(text)
    twice = convert(once.text)
    assert twice.text == once.text
    assert all(note.is_warning for note in twice.notes)
    assert twice.objects == once.objects
    assert "v1beta2" not in once.text.replace('kind": "Pod"', "") or '"Pod"' in once.text
    for word in ("stringValue", "intValue", "selector:", 'selector":'):
        assert word not in once.text


@settings(deadline=None, max_examples=50)
@given(DOCUMENTS)
def test_either_a_change_is_told_or_nothing_changes(objects):
    text = "---\n".join(map(_in_block_style, objects))
    conversion = convert(text)
    told = {note.document for note in conversion.notes if not note.is_warning}
    for number, (before, after) in enumerate(zip(objects, conversion.objects, strict=True), 1):
        assert (before != after) == (number in told)


PIECES = st.sampled_from(
    [
        TEMPLATE,
        SLICE.format(driver="d", shared="true"),
        *("[", "]", "{", "}", "|\n", "%", "'", '"', "\t", "#", "---\n", "...\n", "!", "*a", "~"),
        *(": ", "- ", "? ", "&a ", "!!int ", "!!set ", "<<: *a\n", "\0", "\ud800", "\x85", "1e999"),
        "kind: List\nitems: [1]\n",
        "spec: &s {x: *s}\n",
    ]
)


@example("!spec: &s {x: *s}\n")
@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=8).map("".join))
def test_any_text_is_converted_for_good_or_refused(text):
    try:
        once = convert(text)
    except InvalidInputError:
        return
    assert convert(once.text).text == once.text
