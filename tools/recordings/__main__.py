"""Writes the committed recordings and prints their contents."""

import argparse
from collections import Counter
from pathlib import Path

from dray.recording.file import write_recording
from tools.recordings import services
from tools.recordings.allocators import simulate, simulate_groups

FOLDER = Path(__file__).parents[2] / "tests" / "replay" / "recordings"


def main() -> None:
    """Generate the recordings."""
    parser = argparse.ArgumentParser(prog="python -m tools.recordings", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: tests/replay/…")
    parser.add_argument("--first", type=int, default=3, help="first seed of the search")
    options = parser.parse_args()
    folder: Path = options.folder
    simulation = simulate()
    write_recording(folder / "two-replicas.jsonl.gz", simulation.lines)
    print(f"two-replicas: {len(simulation.lines)} lines; {dict(sorted(simulation.counts.items()))}")
    groups = simulate_groups()
    write_recording(folder / "groups.jsonl.gz", groups.lines)
    print(f"groups: {len(groups.lines)} lines; {dict(sorted(groups.counts.items()))}")
    lines, outcome = services.record_all(options.first)
    write_recording(folder / "four-services.jsonl.gz", lines)
    kinds = Counter(type(line).__name__ for line in lines)
    print(f"four-services: seed {outcome.seed}; {dict(kinds)}; faults: {outcome.counts}")


if __name__ == "__main__":
    main()
