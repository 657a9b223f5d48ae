"""The annotations of a pod (seed 001 §4) as values, with every error found in them.

An error names the annotation, the value seen and what is allowed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeVar

from dray.domain.names import (
    DRA_CEL_EXPRESSION,
    DRA_ENABLED,
    GPU_COUNT,
    GPU_MODEL,
    GPUPOOL,
    MAX_GPUS_PER_CLAIM,
    OWN_ANNOTATIONS,
    POD_ANNOTATIONS,
    PREFIX,
    QOS,
    QOS_LEVELS,
    TFLOPS_LIMIT,
    TFLOPS_REQUEST,
    VRAM_LIMIT,
    VRAM_REQUEST,
)
from dray.domain.quantities import InvalidQuantityError, Quantity, parse_quantity

LEAST = parse_quantity("1")
"""A card's budget admits no request below one unit (``validRange.min`` of the virtual pair)."""
MOST = parse_quantity("9223372036854775807")
"""Kubernetes stores no larger quantity: it would cap it, and the claim would differ."""
SUSPICIOUS_VRAM = parse_quantity("1Mi")
LONGEST_MODEL = 64
"""String attributes of devices are at most this long (resource.k8s.io/v1)."""
LONGEST_POOL = 63
"""The pool's name travels as a label value."""
_POOL_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
MOST_UNKNOWN = 10
"""The API server passes on 4 096 characters of warnings; a longer list helps nobody."""
_SHOWN = 80
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a pod's annotations ask for; amounts are per GPU."""

    dra_enabled: bool | None = None
    """``None``: left to the pool's SchedulingConfigTemplate."""
    tflops: Quantity | None = None
    vram: Quantity | None = None
    """Bytes."""
    pool: str | None = ""
    """Empty: not named. ``None``: named in a way that is no name, which is an error already."""
    count: int = 1
    model: str = ""
    qos: str = ""
    expression: str = ""
    tflops_limit: Quantity | None = None
    vram_limit: Quantity | None = None


@dataclass(slots=True)
class Findings:
    """What was found wrong (the pod is denied) and what is worth a word (it is not)."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Reader:
    annotations: Mapping[str, str]
    findings: Findings

    def read(self, name: str, rule: Callable[[str], T], absent: T) -> T:
        """The value of an annotation by its rule, or ``absent``; a broken rule is an error."""
        text = self.annotations.get(name)
        if text is None:
            return absent
        try:
            return rule(text)
        except ValueError as error:
            self.findings.errors.append(f"annotation {name} is {_shown(text)}: {error}")
            return absent

    def amount(self, name: str, example: str) -> Quantity | None:
        return self.read(name, lambda text: _amount(text, example), None)

    def required(self, name: str, what: str, example: str) -> Quantity | None:
        if name not in self.annotations:
            self.findings.errors.append(
                f'annotation {name} is missing: expected {what} of each GPU, such as "{example}"'
            )
        return self.amount(name, example)

    def limit(self, name: str, request_name: str, request: Quantity | None) -> Quantity | None:
        limit = self.amount(name, "200" if name == TFLOPS_LIMIT else "32Gi")
        if limit is not None and request is not None and limit < request:
            self.findings.errors.append(
                f"annotation {name} is {_shown(self.annotations[name])}: expected at least the "
                f"request, and {request_name} is {_shown(self.annotations[request_name])}"
            )
        return limit


def read_annotations(annotations: Mapping[str, str], findings: Findings) -> Asked:
    """What is asked for; errors and warnings are added to ``findings`` in the order of §4."""
    reader = _Reader(annotations, findings)
    dra_enabled = reader.read(DRA_ENABLED, _boolean, None)
    tflops = reader.required(TFLOPS_REQUEST, "the TFLOPS", "100")
    vram = reader.required(VRAM_REQUEST, "the bytes of memory", "16Gi")
    asked = Asked(
        dra_enabled=dra_enabled,
        tflops=tflops,
        vram=vram,
        pool=reader.read(GPUPOOL, _pool, None) if GPUPOOL in annotations else "",
        count=reader.read(GPU_COUNT, _count, 1),
        model=reader.read(GPU_MODEL, _model, ""),
        qos=reader.read(QOS, _qos, ""),
        expression=reader.read(DRA_CEL_EXPRESSION, _expression, ""),
        tflops_limit=reader.limit(TFLOPS_LIMIT, TFLOPS_REQUEST, tflops),
        vram_limit=reader.limit(VRAM_LIMIT, VRAM_REQUEST, vram),
    )
    if vram is not None and vram < SUSPICIOUS_VRAM:
        seen = annotations[VRAM_REQUEST]
        meant = f'; is "{seen}Gi" meant?' if seen.isdigit() else ""
        findings.warnings.append(
            f"{VRAM_REQUEST} is in bytes: {_shown(seen)} is less than 1Mi{meant}"
        )
    findings.warnings.extend(unknown_annotations(annotations))
    return asked


def unknown_annotations(annotations: Mapping[str, str]) -> list[str]:
    """A warning for each annotation of our prefix that nobody reads, with the nearest name."""
    known = {*POD_ANNOTATIONS, *OWN_ANNOTATIONS}
    unknown = sorted(name for name in annotations if name.startswith(PREFIX) and name not in known)
    warnings = [
        f"annotation {name} is not known and has no effect{_nearest(name)}"
        for name in unknown[:MOST_UNKNOWN]
    ]
    if more := unknown[MOST_UNKNOWN:]:
        warnings.append(f"{len(more)} more annotations of {PREFIX} are not known either")
    return warnings


def _nearest(name: str) -> str:
    short = {known.removeprefix(PREFIX): known for known in POD_ANNOTATIONS}
    found = get_close_matches(name.removeprefix(PREFIX).lower(), short, n=1, cutoff=0.5)
    return f"; did you mean {short[found[0]]}?" if found else ""


def _shown(text: str) -> str:
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    visible = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return '"' + "".join(visible) + '"'


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError('expected "true" or "false"')
    return text == "true"


def _amount(text: str, example: str) -> Quantity:
    try:
        quantity = parse_quantity(text)
    except InvalidQuantityError:
        raise ValueError(
            f"expected a Kubernetes quantity, a number with an optional suffix such as "
            f"m, k, M, G, Ki, Mi or Gi; for example {example}"
        ) from None
    if quantity.nano <= 0:
        raise ValueError("expected a quantity above zero")
    if quantity < LEAST:
        raise ValueError("expected at least 1, the smallest share of a card")
    if quantity > MOST:
        raise ValueError(f"expected at most {MOST}, the largest quantity that Kubernetes keeps")
    return quantity


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= MAX_GPUS_PER_CLAIM:
        raise ValueError(
            f"expected a whole number from 1 to {MAX_GPUS_PER_CLAIM}, "
            "the most devices that Kubernetes allows in one claim"
        )
    return int(text)


def _pool(text: str) -> str:
    if not _POOL_NAME.fullmatch(text) or len(text) > LONGEST_POOL:
        raise ValueError(
            "expected the name of a GPUPool: lower-case letters, digits, '-' and '.', "
            f"{LONGEST_POOL} characters at most"
        )
    return text


def _model(text: str) -> str:
    if not text.strip() or len(text) > LONGEST_MODEL or not text.isprintable():
        raise ValueError(
            f'expected a GPU model such as "A100", {LONGEST_MODEL} characters at most; '
            "leave the annotation out to accept any model"
        )
    if text != text.strip():
        raise ValueError(f'expected no space around it; is "{text.strip()}" meant?')
    return text


def _qos(text: str) -> str:
    if text not in QOS_LEVELS:
        levels = ", ".join(f'"{level}"' for level in QOS_LEVELS)
        raise ValueError(f"expected one of {levels}; leave the annotation out to accept any")
    return text


def _expression(text: str) -> str:
    if not text.strip():
        raise ValueError(
            "expected a CEL expression; leave the annotation out to have one generated"
        )
    return text
