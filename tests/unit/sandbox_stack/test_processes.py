"""The process runner: readiness, order of stopping, and nothing left behind."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dray_sandbox.processes import ProcessSpec, ProgramFailedError, Runner


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncIterator[Runner]:
    runner = Runner(tmp_path / "logs")
    yield runner
    await runner.stop_all()


def python(name: str, code: str, tmp_path: Path, **fields: object) -> ProcessSpec:
    """A program that touches ``<name>.ready`` when it is up."""
    mark = tmp_path / f"{name}.ready"

    async def ready() -> bool:
        return mark.exists()

    source = f"import pathlib\nmark = pathlib.Path({str(mark)!r})\n" + textwrap.dedent(code)
    return ProcessSpec(name, (sys.executable, "-c", source), ready=ready, **fields)  # type: ignore[arg-type]


SLEEPS = "mark.touch()\nimport signal\nsignal.pause()"
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
mark.touch()
while True: signal.pause()
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.02)


async def test_a_program_is_started_when_it_is_ready_and_gone_when_stopped(
    runner: Runner, tmp_path: Path
) -> None:
    await runner.start(python("one", SLEEPS, tmp_path))
    assert (tmp_path / "one.ready").exists()
    pid = runner.pids()["one"]
    await runner.stop_all()
    assert not alive(pid)
    assert runner.pids() == {}


async def test_a_program_that_ends_early_is_reported_with_its_last_words(
    runner: Runner, tmp_path: Path
) -> None:
    broken = python("broken", "print('no such device'); raise SystemExit(3)", tmp_path)
    with pytest.raises(ProgramFailedError, match=r"exit code 3[\s\S]*no such device"):
        await runner.start(broken)


async def test_a_program_that_is_not_ready_in_time_is_reported(
    runner: Runner, tmp_path: Path
) -> None:
    slow = python("slow", "import signal; signal.pause()", tmp_path, ready_within_s=0.2)
    with pytest.raises(ProgramFailedError, match=r"not ready within 0\.2 s"):
        await runner.start(slow)


async def test_waiting_for_one_program_ends_when_another_crashes(
    runner: Runner, tmp_path: Path
) -> None:
    await runner.start(python("needed", SLEEPS, tmp_path))
    waiting = asyncio.create_task(
        runner.start(python("waits", "import signal; signal.pause()", tmp_path))
    )
    await until(lambda: "waits" in runner.pids())
    os.kill(runner.pids()["needed"], signal.SIGKILL)
    with pytest.raises(ProgramFailedError, match="needed ended with signal SIGKILL"):
        await asyncio.wait_for(waiting, 10)


async def test_one_that_ignores_sigterm_is_killed(runner: Runner, tmp_path: Path) -> None:
    await runner.start(python("deaf", STUBBORN, tmp_path, stop_within_s=0.1))
    pid = runner.pids()["deaf"]
    await runner.stop("deaf")
    assert not alive(pid)


async def test_higher_orders_stop_first(runner: Runner, tmp_path: Path) -> None:
    note = tmp_path / "ended"
    code = """
    import os, signal
    def end(*_):
        with open({note!r}, "a") as file: file.write({name!r} + "\\n")
        raise SystemExit
    signal.signal(signal.SIGTERM, end)
    mark.touch()
    while True: signal.pause()
    """
    for order, name in enumerate(("store", "server", "client")):
        filled = textwrap.dedent(code).format(note=str(note), name=name)
        await runner.start(python(name, filled, tmp_path, order=order))
    await runner.stop_all()
    assert note.read_text().split() == ["client", "server", "store"]


async def test_restart_runs_the_same_program_in_a_new_process(
    runner: Runner, tmp_path: Path
) -> None:
    await runner.start(python("one", SLEEPS, tmp_path))
    before = runner.pids()["one"]
    await runner.restart("one")
    assert runner.pids()["one"] != before
    assert not alive(before)


async def test_a_restart_waits_for_the_new_process_to_write_its_file(
    runner: Runner, tmp_path: Path
) -> None:
    slow = """
    import os, time
    time.sleep(0.3)
    mark.with_suffix(".part").write_text(str(os.getpid()))
    mark.with_suffix(".part").rename(mark)
    """
    slow = textwrap.dedent(slow) + SLEEPS
    mark = tmp_path / "one.ready"
    await runner.start(python("one", slow, tmp_path, pid_file=mark))
    await runner.kill("one")
    await runner.restart("one")
    assert mark.read_text() == str(runner.pids()["one"])


async def test_another_program_can_take_the_place_of_one(runner: Runner, tmp_path: Path) -> None:
    await runner.start(python("one", SLEEPS, tmp_path))
    first = runner.pids()["one"]
    await runner.replace(python("one", "print('the second', flush=True)\n" + SLEEPS, tmp_path))
    assert not alive(first)
    await until(lambda: "the second" in runner.log("one").read_text())
    assert "the second" in runner.program("one").argv[-1]


async def test_a_paused_program_can_be_stopped(runner: Runner, tmp_path: Path) -> None:
    await runner.start(python("one", SLEEPS, tmp_path))
    pid = runner.pids()["one"]
    runner.pause("one")
    await runner.stop("one")
    assert not alive(pid)


async def test_a_crash_is_noticed_and_a_wanted_end_is_not(runner: Runner, tmp_path: Path) -> None:
    await runner.start(python("wanted", SLEEPS, tmp_path))
    await runner.start(python("crashing", SLEEPS, tmp_path))
    await runner.kill("wanted")
    os.kill(runner.pids()["crashing"], signal.SIGKILL)
    assert "crashing ended with signal SIGKILL" in await asyncio.wait_for(runner.first_exit(), 10)


async def test_programs_do_not_inherit_this_shells_dray_settings(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_NATS__URL", "nats://elsewhere")
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    code = "import os; print(sorted(k for k in os.environ if k.startswith(('DRAY', 'KUBEC'))))\n"
    program = python("env", code + SLEEPS, tmp_path, environment={"DRAY_INSTANCE": "a"})
    await runner.start(program)
    await runner.stop("env")
    assert runner.log("env").read_text().strip() == "['DRAY_INSTANCE']"


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux ends a child with its parent"
)
async def test_a_killed_launcher_leaves_no_process(tmp_path: Path) -> None:
    code = f"""
    import asyncio, pathlib, sys
    from dray_sandbox.processes import ProcessSpec, Runner
    async def main():
        runner = Runner(pathlib.Path({str(tmp_path)!r}))
        command = (sys.executable, "-c", "import signal; signal.pause()")
        await runner.start(ProcessSpec("child", command))
        print(runner.pids()["child"], flush=True)
        await asyncio.sleep(60)
    asyncio.run(main())
    """
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE
    ) as launcher:
        assert launcher.stdout is not None
        child = int(await asyncio.to_thread(launcher.stdout.readline))
        assert alive(child)
        launcher.kill()
        await asyncio.to_thread(launcher.wait)
    await until(lambda: not alive(child))


async def test_a_program_may_have_as_many_files_open_as_the_system_allows(
    runner: Runner, tmp_path: Path
) -> None:
    """Shells allow 1,024 of them: a process of 150 nodes has more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        say = "import resource\nmark.write_text(str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))"
        await runner.start(python("one", f"{say}\n{SLEEPS}", tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert int((tmp_path / "one.ready").read_text()) == min(65536, limits[1])
