"""Questions with Kubernetes' answers, of which some have an allocation."""

import json
from pathlib import Path

TESTS = Path(__file__).parents[3]
SAMPLE = [
    json.loads(line)
    for line in (TESTS / "vectors" / "alloc-sample.jsonl").read_text("utf-8").splitlines()
]
FITTING = [line for line in SAMPLE if line["expect"].get("allocations")]


def answer(allocations=None, error=None):
    return {"allocations": allocations, "error": error}
