"""The option that starts a stack whose services write down what they consume and decide."""

from typing import Any

import click


def record_option(command: Any) -> Any:
    """``--record``, as the argument ``record``."""
    return click.option(
        "--record",
        is_flag=True,
        help="Services publish what they consume and decide, for `dray record`.",
    )(command)


def recording_settings(record: bool) -> dict[str, str]:
    """The settings of all services that follow from it."""
    return {"DRAY_RECORD": "true"} if record else {}
