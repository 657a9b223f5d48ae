"""The end of a node's machine, without its namespaces."""

import signal
import subprocess
import sys

PROGRAM = """
import signal, sys
from dray_sandbox.node import machine

def run(*_):
    try:
        print("runs", flush=True)
        signal.pause()
    finally:
        print("cleans up", flush=True)
        sys.stdin.readline()
        print("is clean", flush=True)

machine.run, machine.read_plan = run, lambda path: None
sys.argv[1:] = ["plan", "pause"]
sys.exit(machine.main())
"""


def test_further_signals_do_not_end_the_clean_up_of_a_machine() -> None:
    """The kernel sends one for each thread of a parent that is killed."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as machine:
        assert machine.stdin is not None
        assert machine.stdout is not None
        assert machine.stdout.readline() == "runs\n"
        machine.send_signal(signal.SIGTERM)
        assert machine.stdout.readline() == "cleans up\n"
        machine.send_signal(signal.SIGTERM)
        machine.stdin.write("\n")
        machine.stdin.flush()
        assert machine.stdout.readline() == "is clean\n"
    assert machine.returncode == 0
