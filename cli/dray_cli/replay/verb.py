"""``dray replay FILE``: take recorded decisions again and compare."""

import sys
from pathlib import Path
from typing import Any

import click

from dray.recording.file import BadRecordingError, read_recording
from dray_cli.output import output_option, print_json
from dray_cli.replay.everything import replay
from dray_cli.replay.outcome import Outcome


@click.command("replay")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_option
def replay_verb(file: Path, output: str) -> None:
    """Decide everything in a recording again, with no effects, and compare byte by byte.

    Exit code 1 if a record differs; the first one is shown with the event before it.
    """
    outcome = replay(read_recording(file))
    if not outcome.compared and outcome.divergence is None:
        raise BadRecordingError(
            f"{file} holds no decision that could be taken again: {outcome.folded} records lie "
            f"before its checkpoint, {outcome.uncovered} lack facts; record while pods come and go"
        )
    if output == "json":
        print_json(as_data(outcome))
    else:
        show(file, outcome)
    if outcome.divergence is not None:
        sys.exit(1)


def as_data(outcome: Outcome) -> dict[str, Any]:
    """The outcome for programs."""
    divergence = outcome.divergence
    return {
        "equal": divergence is None,
        "facts": outcome.facts,
        "compared": dict(sorted(outcome.compared.items())),
        "folded": outcome.folded,
        "uncovered": outcome.uncovered,
        "entangled": outcome.entangled,
        "divergence": None if divergence is None else divergence.as_json(),
    }


def show(file: Path, outcome: Outcome) -> None:
    """The outcome for people."""
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.compared.items()))
    if outcome.divergence is not None:
        click.echo("\n".join(outcome.divergence.lines()))
        click.echo(f"Equal before it: {counts or 'nothing'}.")
        return
    rest = f"{outcome.folded} only folded"
    if outcome.uncovered:
        rest += f", {outcome.uncovered} not compared (their facts were not recorded step by step)"
    if outcome.entangled:
        rest += f", {outcome.entangled} not compared (another pool's log had a say in them)"
    click.echo(f"Equal: {outcome.facts} facts; records decided again: {counts}; {rest}.")
