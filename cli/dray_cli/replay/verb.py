"""``dray replay FILE``: repeats recorded decisions and compares them."""

import sys
from pathlib import Path
from typing import Any

import click

from dray.recording.file import BadRecordingError, read_recording
from dray_cli.explain import pod_name
from dray_cli.output import output_option, print_json
from dray_cli.replay.allocator import recorded_scores
from dray_cli.replay.outcome import ReplayOutcome, ReplayTally
from dray_cli.replay.run import replay


@click.command("replay")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--scores",
    metavar="pod/NAME",
    help="Only show the best nodes and their scores when this pod was decided.",
)
@click.option(
    "-n", "--namespace", default="default", show_default=True, help="That pod's namespace."
)
@output_option
def replay_verb(file: Path, scores: str | None, namespace: str, output: str) -> None:
    """Decide everything in a recording again, with no effects, and compare byte by byte.

    Exit code 1 if a record differs; the first one is shown with the event before it.
    """
    if scores is not None:
        _show_scores(file, namespace, pod_name(scores), output)
        return
    outcome = replay(read_recording(file))
    if not outcome.compared and outcome.divergence is None:
        folded = sum(tally.folded for tally in outcome.services.values())
        uncovered = sum(
            tally.uncovered + tally.unresolved.total() for tally in outcome.services.values()
        )
        raise BadRecordingError(
            f"{file} holds no decision that could be replayed: {folded} records lie before "
            f"its checkpoint, {uncovered} decisions lack recorded inputs; "
            "record while pods come and go"
        )
    if output == "json":
        print_json(_as_data(outcome))
    else:
        show(outcome)
    if outcome.divergence is not None:
        sys.exit(1)


def _show_scores(file: Path, namespace: str, name: str, output: str) -> None:
    found = recorded_scores(read_recording(file), namespace, name)
    if found is None:
        raise BadRecordingError(f"{file} holds no decision about pod {namespace}/{name}")
    if output == "json":
        print_json(found.as_json())
    else:
        found.echo()


def _as_data(outcome: ReplayOutcome) -> dict[str, Any]:
    """The outcome for programs."""
    divergence = outcome.divergence
    return {
        "equal": divergence is None,
        "facts": outcome.facts,
        "compared": dict(sorted(outcome.compared.items())),
        "services": {name: tally.as_json() for name, tally in outcome.services.items()},
        "unknown": dict(sorted(outcome.unknown.items())),
        "divergence": None if divergence is None else divergence.as_json(),
    }


def show(outcome: ReplayOutcome) -> None:
    """The outcome for people: a line per service, then the first difference of each."""
    for name, tally in outcome.services.items():
        click.echo(f"{name + ':':18}{_in_words(tally)}")
    for kind, count in sorted(outcome.unknown.items()):
        click.echo(f"Not replayed, because this version does not know it: {count} × {kind}.")
    for tally in outcome.services.values():
        if tally.divergence is not None:
            click.echo("\n" + "\n".join(tally.divergence.lines()))


def _in_words(tally: ReplayTally) -> str:
    """The result for one service."""
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.compared.items()))
    verdict = "equal" if tally.divergence is None else "DIFFERENT after these equal ones"
    found = f"{verdict}: {counts}" if counts else "nothing to compare"
    if not counts and tally.divergence is not None:
        found = "DIFFERENT at once"
    rest = {
        f"{tally.consumed} events": tally.consumed,
        f"{tally.folded} only folded": tally.folded,
        f"{tally.uncovered} not compared (their inputs were not recorded step by "
        "step)": tally.uncovered,
        **{
            f"{count} not compared (no look-up of a {kind} was recorded)": count
            for kind, count in sorted(tally.unresolved.items())
        },
        f"{tally.entangled} not compared (they depend on another pool's log)": tally.entangled,
    }
    return "; ".join([found, *(text for text, count in rest.items() if count)])
