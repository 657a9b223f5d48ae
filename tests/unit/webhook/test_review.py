"""The envelope: AdmissionReview in and out, and the JSON patch between."""

import base64
import json

import jsonpatch
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dray_webhook.decisions.jsonpatch import difference
from dray_webhook.decisions.review import (
    AdmissionAnswer,
    MalformedReviewError,
    read_review,
    write_review,
)


def test_an_answer_carries_patch_and_warnings():
    patch = ({"op": "add", "path": "/a", "value": "ä"},)

    review = write_review("uid-1", AdmissionAnswer(patch=patch, warnings=("w" * 300,)))

    response = review["response"]
    assert (review["kind"], review["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    assert (response["uid"], response["allowed"]) == ("uid-1", True)
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == list(patch)
    assert response["warnings"] == ["w" * 256]


def test_a_denial_carries_its_message_and_no_patch():
    response = write_review("uid-1", AdmissionAnswer(allowed=False, message="why", code=400))[
        "response"
    ]

    assert response == {
        "uid": "uid-1",
        "allowed": False,
        "status": {"code": 400, "reason": "BadRequest", "message": "why"},
    }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "body can't be read"),
        (b"[]", "body"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "request"),
        (
            b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{}}',
            "apiVersion",
        ),
        (
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":""}}',
            "request.uid",
        ),
    ],
)
def test_what_is_not_a_review_is_refused_with_the_field(body, expected):
    with pytest.raises(MalformedReviewError, match=expected):
        read_review(body)


_json = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["a", "~/"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b/", "~1"]), inner)
    ),
    max_leaves=8,
)


@given(_json, _json)
@example(True, 1)
@example([{"a": 0}], [{"a": False}])
def test_the_patch_makes_the_new_of_the_old(old, new):
    old, new = {"root": old}, {"root": new}

    result = jsonpatch.apply_patch(old, list(difference(old, new)))

    assert json.dumps(result, sort_keys=True) == json.dumps(new, sort_keys=True)


@given(_json)
def test_equal_objects_need_no_patch(obj):
    assert list(difference(obj, obj)) == []
