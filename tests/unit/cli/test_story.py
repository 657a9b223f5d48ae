"""A pod's steps are shown in the order of the main job, in any order of events."""

from dray_cli.demo.story import REQUIRED, Story
from dray_cli.text import device_lines, env_lines


def story() -> Story:
    return Story("default", "train", asked_unix_s=100.0, trace_id="abc")


def test_the_first_sighting_of_a_step_counts() -> None:
    pod_story = story()

    pod_story.saw("claim", 100.5, "train-claim")
    pod_story.saw("claim", 109.0, "seen again")

    assert pod_story.steps["claim"].text == "train-claim"


def test_steps_are_shown_in_the_order_of_the_job() -> None:
    pod_story = story()
    for step in reversed(REQUIRED):
        pod_story.saw(step, 101.0, step)

    assert [step.name for step in pod_story.in_order()] == list(REQUIRED)


def test_a_running_pod_is_not_complete_before_its_bind_request_succeeded() -> None:
    pod_story = story()
    for step in REQUIRED:
        pod_story.saw(step, 101.0, step)

    assert not pod_story.is_complete
    pod_story.bind_phase = "Succeeded"
    assert pod_story.is_complete


def test_missing_steps_are_named() -> None:
    pod_story = story()
    for step in REQUIRED[:-2]:
        pod_story.saw(step, 101.0, step)

    assert pod_story.missing == REQUIRED[-2:]


def test_lines_give_milliseconds_since_the_request_and_details_below() -> None:
    pod_story = story()
    pod_story.saw("decided", 100.25, "node n", ("gpu-1 virtual_vram=16Gi",))

    head, step, detail = pod_story.lines()

    assert head.split() == ["default/train", "trace", "abc"]
    assert step.split() == ["250", "ms", "decided", "node", "n"]
    assert detail.strip() == "gpu-1 virtual_vram=16Gi"


def test_a_text_gets_its_short_names_before_it_is_broken() -> None:
    pod_story = story()
    pod_story.saw("waiting", 100.25, f"nearest: n/{'long-' * 20}name has 212")

    _, *found = pod_story.lines(60, lambda text: text.replace(f"{'long-' * 20}name", "gpu-1"))

    assert [line.split("waiting")[-1].strip() for line in found] == ["nearest: n/gpu-1 has 212"]


def test_long_texts_are_broken_below_their_beginning() -> None:
    pod_story = story()
    pod_story.saw("admitted", 100.25, "word " * 30)

    _, first, second, *_ = pod_story.lines(60)

    assert max(len(first), len(second)) <= 60
    assert first.index("word") == second.index("word")


def test_the_binding_shows_the_phase_of_now() -> None:
    pod_story = story()
    pod_story.saw("bound", 101.0, "to n")
    pod_story.binder, pod_story.bind_phase = "dray", "Succeeded"

    assert pod_story.lines()[1].endswith("to n by dray, BindRequest Succeeded")


def test_devices_and_variables_are_one_per_line() -> None:
    assert device_lines([("gpu-1", {"b": "2", "a": "1"})]) == ("gpu-1 a=1 b=2",)
    assert env_lines({"CARDS": "x,y"}) == ("CARDS=x", "     ,y")
