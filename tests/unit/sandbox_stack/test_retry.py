"""A retry raises permanent refusals at once, and temporary ones only after a while."""

import pytest

from dray.kube.ports import PODS, AlreadyExistsError, KubeUnavailableError, RefusedError
from tools.retry import RetryingKube, retry

POD = {"metadata": {"name": "p", "namespace": "team", "uid": "u", "resourceVersion": "1"}}


class Answers:
    """A connection that answers one after the other."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def call(self, method, path, **_):
        self.asked.append(method)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


NOT_NOW = KubeUnavailableError("not now")
THERE = AlreadyExistsError("there")


async def test_what_is_refused_for_the_moment_is_asked_again():
    line = Answers(NOT_NOW, NOT_NOW, POD)
    assert await RetryingKube(line, "test").create(PODS, POD) == POD
    assert line.asked == ["POST"] * 3


async def test_what_an_unheard_try_created_is_returned_as_it_is():
    line = Answers(NOT_NOW, THERE, {**POD, "kind": "Pod"})
    assert await RetryingKube(line, "test").create(PODS, POD) == {**POD, "kind": "Pod"}
    assert line.asked == ["POST", "POST", "GET"]


@pytest.mark.parametrize("refusal", [THERE, RefusedError("no", status=422)], ids=["there", "no"])
async def test_a_permanent_refusal_is_raised_at_once(refusal):
    with pytest.raises(type(refusal)):
        await RetryingKube(Answers(refusal), "test").create(PODS, POD)


async def test_patience_ends():
    async def act():
        raise NOT_NOW

    with pytest.raises(KubeUnavailableError, match="not now"):
        await retry(act, within_s=0)
