"""Environments of celpy, an independent implementation of standard CEL."""

import sys

import celpy


def celpy_environment() -> celpy.Environment:
    """A new environment, without the recursion limit that celpy sets for the whole process.

    That limit, 2 500 frames, may be lower than the one that ``dray.cel`` sets.
    """
    limit = sys.getrecursionlimit()
    try:
        return celpy.Environment()
    finally:
        sys.setrecursionlimit(limit)
