"""Quantities, selectors, ages, paths into objects, protobuf."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray_sandbox.apiserver import protobuf, quantities
from dray_sandbox.apiserver.columns import age, json_path
from dray_sandbox.apiserver.selectors import field_value, label_selector, matches_labels
from dray_sandbox.apiserver.status import ApiError

# Each pair is what kube-apiserver 1.36.3 answered.
CANONICAL = [
    ("1024Mi", "1Gi"),
    ("0.5", "500m"),
    ("1e3", "1e3"),
    ("1500m", "1500m"),
    ("1000k", "1M"),
    ("1024Ki", "1Mi"),
    ("0.1Gi", "107374182400m"),
    ("0.5Gi", "512Mi"),
    ("-5", "-5"),
    ("0", "0"),
    ("12345678901234567890", "12345678901234567890"),
]


@pytest.mark.parametrize(("written", "answered"), CANONICAL)
def test_quantities_are_canonical(written: str, answered: str) -> None:
    assert str(quantities.parse(written)) == answered


@pytest.mark.parametrize("text", ["", "16Gigs", "a", "1 Gi", "1.2.3", "ki", "1mi"])
def test_what_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        quantities.parse(text)


suffixes = st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti"])


@settings(deadline=None)
@given(number=st.integers(0, 10**9), suffix=suffixes)
def test_the_canonical_form_keeps_the_value_and_is_stable(number: int, suffix: str) -> None:
    first = quantities.parse(f"{number}{suffix}")
    again = quantities.parse(str(first))

    assert again.value == first.value
    assert str(again) == str(first)


AGES = [
    (45, "45s"),
    (119, "119s"),
    (130, "2m10s"),
    (3600, "60m"),
    (4 * 3600, "4h"),
    (3 * 86400, "3d"),
]


@pytest.mark.parametrize(("seconds", "shown"), AGES)
def test_ages_are_shown_as_kubectl_shows_them(seconds: int, shown: str) -> None:
    then = datetime.now(UTC) - timedelta(seconds=seconds, milliseconds=300)

    assert age(then.isoformat()) == shown


ITEM = {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X"}], "n": [1, 2]}}
PATHS = [
    ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
    (".status.conditions[*].type", ["Ready", "X"]),
    (".status.n[1]", [2]),
    (".status.none", []),
]


@pytest.mark.parametrize(("path", "found"), PATHS)
def test_printer_columns_find_their_values(path: str, found: list[Any]) -> None:
    assert json_path(ITEM, path) == found


def test_a_label_selector_object_is_understood() -> None:
    terms = label_selector(
        {
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}],
        }
    )

    assert matches_labels(terms, {"a": "b"})
    assert not matches_labels(terms, {"a": "b", "c": "d"})
    assert matches_labels(label_selector({}), None)


def test_a_node_that_says_nothing_is_schedulable() -> None:
    assert field_value({"spec": {}}, "spec.unschedulable") == "false"


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def test_a_protobuf_namespace_is_read() -> None:
    label = _field(11, _field(1, b"k") + _field(2, b"v"))
    namespace = _field(1, _field(1, b"team-a") + label)
    types = _field(1, b"v1") + _field(2, b"Namespace")
    raw = protobuf.MAGIC + _field(1, types) + _field(2, namespace)

    assert protobuf.decode(raw) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "team-a", "labels": {"k": "v"}},
    }


def test_protobuf_of_other_kinds_is_refused() -> None:
    types = _field(1, b"v1") + _field(2, b"Pod")

    with pytest.raises(ApiError) as caught:
        protobuf.decode(protobuf.MAGIC + _field(1, types) + _field(2, b""))

    assert caught.value.code == 415


@settings(deadline=None)
@given(raw=st.binary(max_size=60))
def test_no_protobuf_breaks_the_reader(raw: bytes) -> None:
    with pytest.raises(ApiError):
        protobuf.decode(protobuf.MAGIC + raw)
