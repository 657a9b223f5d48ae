"""The option that starts a stack whose services publish what they consume and decide."""

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
    """The settings that the option gives to all services."""
    return {"DRAY_RECORD": "true"} if record else {}
