"""Environments of celpy, an engine of the standard language that is not ours."""

import sys

import celpy


def celpy_environment() -> celpy.Environment:
    """A new one, without the recursion limit that it sets for the whole process.

    That limit, 2 500 frames, may lie below the one that ``dray.cel`` has raised.
    """
    limit = sys.getrecursionlimit()
    try:
        return celpy.Environment()
    finally:
        sys.setrecursionlimit(limit)
