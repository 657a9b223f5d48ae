"""The table of stages, with their times and budgets. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tools.ci.stages import BUILD, LIMIT_S, STAGES, CiStage
from tools.command import Ended


@dataclass(frozen=True, slots=True)
class Row:
    """A stage that ended."""

    stage: CiStage
    ended: Ended

    @property
    def remark(self) -> str:
        """A problem that a reader must not overlook; empty if there is none."""
        if self.ended.exit_code:
            return f"FAILED with exit code {self.ended.exit_code}"
        over_s = self.ended.wall_s - self.stage.budget_s
        return f"OVER ITS BUDGET by {minutes(over_s)}" if over_s > 0 else ""

    @property
    def line(self) -> str:
        """The row as text."""
        name = (
            f"{self.stage.command}{', in parallel with the others' if self.stage == BUILD else ''}"
        )
        wall, cpu = f"{self.ended.wall_s:.0f} s", f"{self.ended.cpu_s:.0f} s"
        budget = f"{self.stage.budget_s} s"
        return f"{name:<52}{wall:>7}{budget:>8}{cpu:>8}  {self.remark}".rstrip()


def table(rows: Sequence[Row], total_s: float) -> str:
    """A line for each row, and the total."""
    budgets_s = sum(stage.budget_s for stage in STAGES)
    return "\n".join(
        [
            f"{'stage':<52}{'wall':>7}{'budget':>8}{'CPU':>8}",
            *(row.line for row in rows),
            f"all stages took {minutes(total_s)}; their budgets are {minutes(budgets_s)}, "
            f"and more than {minutes(LIMIT_S)} fail",
        ]
    )


def minutes(seconds: float) -> str:
    """Such as ``38 min`` or ``4 min 5 s``."""
    whole, rest = divmod(round(seconds), 60)
    parts = (f"{whole} min" if whole else "", f"{rest} s" if rest or not whole else "")
    return " ".join(filter(None, parts))
