"""Whole files: streams, lists, comments, and what passes through."""

import json
from itertools import pairwise

import pytest

from dray.api.errors import InvalidInputError
from dray.user_guide_form import yaml_adapter
from dray.user_guide_form.documents import convert


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
    template = "apiVersion: resource.k8s.io/v1beta2\nkind: ResourceClaimTemplate\nspec: {}\n"
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
def test_what_is_not_yaml_is_refused(text, reason):
    with pytest.raises(InvalidInputError, match=reason):
        convert(text)


def test_anchors_may_be_named_twice():
    assert convert("a: &x 1\nb: *x\nc: &x 2\nd: *x\n").objects == (
        {"a": 1, "b": 1, "c": 2, "d": 2},
    )


def test_aliases_can_not_blow_a_file_up(monkeypatch):
    monkeypatch.setattr(yaml_adapter, "_MOST_VALUES", 1000)
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
