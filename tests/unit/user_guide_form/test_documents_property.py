"""Every file is refused, or converted once and for good with a note for every change."""

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dray.api.errors import InvalidInputError
from dray.user_guide_form.documents import convert

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
        lambda fields, exactly: {"name": "r", **fields, "exactly": exactly},
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
def test_every_change_has_a_note(objects):
    text = "---\n".join(map(_in_block_style, objects))
    conversion = convert(text)
    reported = {note.document for note in conversion.notes if not note.is_warning}
    for number, (before, after) in enumerate(zip(objects, conversion.objects, strict=True), 1):
        assert (before != after) == (number in reported)


PIECES = st.sampled_from(
    [
        "apiVersion: resource.k8s.io/v1beta2\nkind: ResourceClaimTemplate\n"
        "spec:\n  spec:\n    devices:\n      requests:\n",
        "# inventory\napiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nspec:\n  driver: d\n"
        "  devices:\n  - name: gpu-0  # the first\n    capacity: {vram: {value: 40Gi}}\n",
        *("[", "]", "{", "}", "|\n", "%", "'", '"', "\t", "#", "---\n", "...\n", "!", "*a", "~"),
        *(": ", "- ", "? ", "&a ", "!!int ", "!!set ", "<<: *a\n", "\0", "\ud800", "\x85", "1e999"),
        "kind: List\nitems: [1]\n",
        "spec: &s {x: *s}\n",
    ]
)


@example("!spec: &s {x: *s}\n")
@example("!!int ")
@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=8).map("".join))
def test_any_text_is_converted_for_good_or_refused(text):
    try:
        once = convert(text)
    except InvalidInputError:
        return
    assert convert(once.text).text == once.text
