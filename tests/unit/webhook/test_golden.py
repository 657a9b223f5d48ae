"""AdmissionReviews in, answers out, as committed: ``golden/*.json`` are never edited.

A golden holds the review's request and the answer's response, its patch decoded.
"""

import base64
import json
from pathlib import Path

import pytest

from dray_webhook.decisions.pods import admit_pod
from dray_webhook.decisions.review import read_review, write_review

FOLDER = Path(__file__).parent / "golden"


def response_to(cluster, request):
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    read = read_review(json.dumps(body).encode())
    answer = admit_pod(read, cluster.view, cluster.rules, cluster.ids)
    response = write_review(read.uid, answer)["response"]
    if "patch" in response:
        response["patch"] = json.loads(base64.b64decode(response["patch"]))
    return response


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_review_is_answered_as_ever(cluster, path):
    golden = json.loads(path.read_text())

    assert response_to(cluster, golden["request"]) == golden["response"]


def test_there_are_goldens():
    assert len(list(FOLDER.glob("*.json"))) >= 4
