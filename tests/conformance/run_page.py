"""The tables of docs/compatibility.md that ``make conformance RECORD=1`` writes.

python tests/conformance/run_page.py            writes them from results.json in this folder
python tests/conformance/run_page.py --check    exit code 1 where the page says something else
"""

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from run_parts import PARTS
from run_report import MinorReport, summary
from run_results import Result

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "compatibility.md"
RESULTS: Final = Path(__file__).with_name("results.json")
BEGIN: Final = "<!-- written by `make conformance RECORD=1` -->\n"
END: Final = "<!-- end of what is written -->\n"
Json = dict[str, Any]


def record(reports: Sequence[MinorReport]) -> None:
    """Keep what was run, in place of what was recorded of the same parts, and show it."""
    kept: Json = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for report in reports:
        if not report.results:
            continue
        before = kept.get(report.version.rpartition(".")[0], {})
        former = before.get("parts", {}) if before.get("version") == report.version else {}
        ran = {result.part: _recorded(result, today) for result in report.results}
        kept[report.version.rpartition(".")[0]] = {
            "version": report.version,
            "parts": {
                part.name: (former | ran)[part.name] for part in PARTS if part.name in former | ran
            },
        }
    text = json.dumps(dict(sorted(kept.items())), indent=2, ensure_ascii=False)
    RESULTS.write_text(text.replace(str(ROOT), ".") + "\n", "utf-8")
    write()


def write() -> None:
    """Put the tables into the page."""
    PAGE.write_text(_page_with(tables(json.loads(RESULTS.read_text("utf-8")))), "utf-8")


def tables(recorded: Json) -> str:
    """One column for each minor, and below it what does not hold or is not meant to."""
    minors = list(recorded.values())
    if not minors:
        return "Nothing was recorded yet.\n"
    lines = [
        f"| part | {' | '.join(minor['version'] for minor in minors)} |",
        f"|---|{'---|' * len(minors)}",
    ]
    for part in PARTS:
        cells = [minor["parts"].get(part.name, {}).get("summary", "not run") for minor in minors]
        lines.append(f"| {part.name}: {_lower(part.title)} | {' | '.join(cells)} |")
    lines.append(f"| when, and how long | {' | '.join(map(_when, minors))} |")
    return "\n".join([*lines, *_remarks(minors)]) + "\n"


def _when(minor: Json) -> str:
    parts = minor["parts"].values()
    first, last = min(part["date"] for part in parts), max(part["date"] for part in parts)
    took_min = sum(part["took_s"] for part in parts) / 60
    return f"{first if first == last else f'{first} to {last}'}, {took_min:.0f} min"


def _remarks(minors: Sequence[Json]) -> list[str]:
    """Tests that are meaningless on a minor, with their reasons, and what differed."""
    lines: list[str] = []
    for minor in minors:
        for name, part in minor["parts"].items():
            stated = [f"**differs**: {difference}" for difference in part["differences"]]
            if part["not_on"]:
                stated.insert(0, "; ".join(f"{n} {why}" for why, n in part["not_on"].items()))
            lines += [f"- {minor['version']}, {name}: {one}" for one in stated]
    return ["", *lines] if lines else []


def _recorded(result: Result, date: str) -> Json:
    return {
        "date": date,
        "took_s": round(result.took_s),
        "summary": summary(result),
        "not_on": dict(result.not_on),
        "differences": list(result.differences),
    }


def _page_with(text: str) -> str:
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def _lower(title: str) -> str:
    first, _, rest = title.partition(" ")
    word = first if first in ("Kubernetes", "kube-scheduler's") else first.lower()
    return f"{word} {rest}"


def main() -> int:
    """Write the tables, or compare them."""
    parser = argparse.ArgumentParser(description="Write the tables of docs/compatibility.md.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if not parser.parse_args().check:
        write()
        return 0
    if PAGE.read_text("utf-8") == _page_with(tables(json.loads(RESULTS.read_text("utf-8")))):
        return 0
    print(f"{PAGE.relative_to(ROOT)} is not what was recorded; run `make generate`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
