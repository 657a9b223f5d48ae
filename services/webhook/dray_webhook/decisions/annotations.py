"""Parses a pod's annotations and collects all errors in them.

An error names the annotation, its value and what is allowed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TypeVar

from dray.api.names import (
    COMPUTE_PERCENT_LIMIT,
    COMPUTE_PERCENT_REQUEST,
    DEDICATED_GPU,
    DRA_CEL_EXPRESSION,
    DRA_ENABLED,
    GPU_COUNT,
    GPU_MODEL,
    GPU_TOPOLOGY,
    GPUPOOL,
    OWN_ANNOTATIONS,
    PLACEMENT,
    POD_ANNOTATIONS,
    PREFER,
    PREFIX,
    QOS,
    TFLOPS_LIMIT,
    TFLOPS_REQUEST,
    VRAM_LIMIT,
    VRAM_REQUEST,
)
from dray.api.placement import parse_topology
from dray.api.preference import ByModel, parse_preference
from dray.api.quantities import Quantity, parse_quantity
from dray_webhook.decisions import annotation_values as values
from dray_webhook.decisions.annotation_values import quoted

_SMALLEST_PLAUSIBLE_VRAM = parse_quantity("1Mi")
_MAX_UNKNOWN_WARNINGS = 10
"""The API server passes on 4 096 characters of warnings."""
_OTHER_MEASURE = "which states compute by another measure"
T = TypeVar("T")
Rule = Callable[[str], T]
"""Parses an annotation's text; raises ValueError with what is expected."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """The GPUs that a pod's annotations request; amounts are per GPU."""

    dra_enabled: bool | None = None
    """``None``: the pool's SchedulingConfigTemplate decides."""
    tflops: Quantity | None = None
    vram: Quantity | None = None
    """Bytes."""
    pool: str | None = ""
    """Empty: no annotation. ``None``: an invalid name, which has been reported."""
    count: int = 1
    model: str = ""
    qos: str = ""
    expression: str = ""
    tflops_limit: Quantity | None = None
    vram_limit: Quantity | None = None
    whole: bool = False
    """Whole devices, not shared."""
    compute_percent: Quantity | None = None
    """Instead of ``tflops``: percent of the device's capacity."""
    vram_percent: Quantity | None = None
    compute_percent_limit: Quantity | None = None
    prefer: str = ""
    placement: str = ""
    """Overrides the pool's placement; empty: the pool's placement applies."""
    topology: str = ""

    @property
    def states_amounts(self) -> bool:
        """Whether the amounts of each device are known."""
        compute = self.tflops or self.compute_percent
        return self.whole or bool(compute and (self.vram or self.vram_percent))


@dataclass(slots=True)
class AnnotationFindings:
    """Errors, which deny the pod, and warnings, which do not."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


AMOUNTS = (
    DEDICATED_GPU,
    COMPUTE_PERCENT_REQUEST,
    TFLOPS_REQUEST,
    VRAM_REQUEST,
    TFLOPS_LIMIT,
    VRAM_LIMIT,
    COMPUTE_PERCENT_LIMIT,
)
"""The annotations for amounts. A container that states one of them inherits none."""


@dataclass(slots=True)
class AnnotationReader:
    """Parses annotations by their rules and collects errors."""

    annotations: Mapping[str, str]
    findings: AnnotationFindings
    inside: str = ""
    """The annotation and container that contain the values; empty: each is its own annotation."""

    def location(self, name: str) -> str:
        """Where a value is, for error texts."""
        return f"{self.inside}, {name.removeprefix(PREFIX)}" if self.inside else name

    def read(self, name: str, rule: Rule[T], absent: T) -> T:
        """The value of an annotation by its rule, or ``absent``; a broken rule is an error."""
        text = self.annotations.get(name)
        if text is None:
            return absent
        try:
            return rule(text)
        except ValueError as error:
            self.findings.errors.append(
                f"annotation {self.location(name)} is {quoted(text)}: {error}"
            )
            return absent

    def amount(self, name: str, example: str) -> Quantity | None:
        return self.read(name, _like(example), None)

    def required(self, name: str, what: str, example: str) -> Quantity | None:
        if name not in self.annotations:
            self.findings.errors.append(
                f"annotation {self.location(name)} is missing: expected {what} of each GPU, "
                f'such as "{example}"'
            )
        return self.amount(name, example)

    def limit(
        self, name: str, rule: Rule[Quantity], request_name: str, request: Quantity | None
    ) -> Quantity | None:
        limit = self.read(name, rule, None)
        if limit is not None and request is not None and limit < request:
            self.findings.errors.append(
                f"annotation {self.location(name)} is {quoted(self.annotations[name])}: "
                f"expected at least the request, "
                f"and {request_name} is {quoted(self.annotations[request_name])}"
            )
        return limit

    def refuse_combination(self, name: str, other: str, because: str) -> None:
        """Report an error if ``name`` is set too: the two contradict each other."""
        if name in self.annotations:
            self.findings.errors.append(
                f"annotation {self.location(name)} is {quoted(self.annotations[name])}: "
                f"expected none together with {other}, {because}"
            )


def read_annotations(
    annotations: Mapping[str, str], findings: AnnotationFindings, *, needs_amounts: bool = True
) -> GpuRequest:
    """Parse the annotations; adds errors and warnings to ``findings``.

    ``needs_amounts`` is false if all containers state their own amounts.
    """
    reader = AnnotationReader(annotations, findings)
    dra_enabled = reader.read(DRA_ENABLED, values.boolean, None)
    needs_amounts = needs_amounts or any(name in annotations for name in AMOUNTS)
    amounts = read_amounts(reader) if needs_amounts else GpuRequest()
    pool = reader.read(GPUPOOL, values.pool, None) if GPUPOOL in annotations else ""
    cards = replace(read_cards(reader, amounts), dra_enabled=dra_enabled, pool=pool)
    expression = reader.read(DRA_CEL_EXPRESSION, values.expression, "")
    limited = read_limits(reader, replace(cards, expression=expression))
    asked = _read_preferences(reader, limited)
    _suspect_models(reader, asked)
    findings.warnings.extend(_unknown_annotations(annotations))
    return asked


def _read_preferences(reader: AnnotationReader, asked: GpuRequest) -> GpuRequest:
    """Preferences among the devices that fit."""
    return replace(
        asked,
        prefer=reader.read(PREFER, values.preference, ""),
        placement=reader.read(PLACEMENT, values.placement, ""),
        topology=reader.read(GPU_TOPOLOGY, parse_topology, ""),
    )


def read_amounts(reader: AnnotationReader) -> GpuRequest:
    """The amounts of each device: all of it, a percentage, or quantities."""
    annotations = reader.annotations
    whole = (
        reader.read(DEDICATED_GPU, values.boolean, True) if DEDICATED_GPU in annotations else False
    )
    if whole:
        for name in (COMPUTE_PERCENT_REQUEST, TFLOPS_REQUEST, VRAM_REQUEST):
            reader.refuse_combination(name, DEDICATED_GPU, "which takes whole cards")
        return GpuRequest(whole=True)
    vram_example = "16Gi"
    if COMPUTE_PERCENT_REQUEST in annotations:
        percent = reader.read(COMPUTE_PERCENT_REQUEST, values.percent, None)
        reader.refuse_combination(TFLOPS_REQUEST, COMPUTE_PERCENT_REQUEST, _OTHER_MEASURE)
        vram = reader.amount(VRAM_REQUEST, vram_example)
        asked = GpuRequest(
            compute_percent=percent,
            vram=vram,
            vram_percent=None if VRAM_REQUEST in annotations else percent,
        )
    else:
        tflops = reader.required(TFLOPS_REQUEST, "the TFLOPS", "100")
        asked = GpuRequest(
            tflops=tflops, vram=reader.required(VRAM_REQUEST, "the bytes of memory", vram_example)
        )
    _suspect(reader, asked.vram)
    return asked


def read_cards(reader: AnnotationReader, asked: GpuRequest) -> GpuRequest:
    """Which devices and how many; the default is what ``asked`` has."""
    return replace(
        asked,
        count=reader.read(GPU_COUNT, values.count, asked.count),
        model=reader.read(GPU_MODEL, values.model, asked.model),
        qos=reader.read(QOS, values.qos, asked.qos),
    )


def read_limits(reader: AnnotationReader, asked: GpuRequest) -> GpuRequest:
    """The limits that the node enforces."""
    if COMPUTE_PERCENT_LIMIT in reader.annotations:
        reader.refuse_combination(TFLOPS_LIMIT, COMPUTE_PERCENT_LIMIT, _OTHER_MEASURE)
    return replace(
        asked,
        tflops_limit=reader.limit(TFLOPS_LIMIT, _like("200"), TFLOPS_REQUEST, asked.tflops),
        vram_limit=reader.limit(VRAM_LIMIT, _like("32Gi"), VRAM_REQUEST, asked.vram),
        compute_percent_limit=reader.limit(
            COMPUTE_PERCENT_LIMIT, values.percent, COMPUTE_PERCENT_REQUEST, asked.compute_percent
        ),
    )


def _like(example: str) -> Rule[Quantity]:
    return lambda text: values.amount(text, example)


def _suspect(reader: AnnotationReader, vram: Quantity | None) -> None:
    if vram is not None and vram < _SMALLEST_PLAUSIBLE_VRAM:
        seen = reader.annotations[VRAM_REQUEST]
        meant = f'; is "{seen}Gi" meant?' if seen.isdigit() else ""
        reader.findings.warnings.append(
            f"{reader.location(VRAM_REQUEST)} is in bytes: {quoted(seen)} is less than 1Mi{meant}"
        )


def _suspect_models(reader: AnnotationReader, asked: GpuRequest) -> None:
    """Warn of models without an upper-case letter, which no GPU publishes: they are other words, or
    names in lower case."""
    preferred = [
        model
        for one in parse_preference(asked.prefer)
        if isinstance(one, ByModel)
        for model in one.models
    ]
    named = [(GPU_MODEL, asked.model), *((PREFER, model) for model in preferred)]
    reader.findings.warnings.extend(
        f'{reader.location(name)} has the model "{model}": models are compared as they are '
        'written, such as "A100"'
        for name, model in dict.fromkeys(named)
        if model and model == model.lower()
    )


def _unknown_annotations(annotations: Mapping[str, str]) -> list[str]:
    """A warning for each unknown annotation with dray's prefix, with the nearest known name."""
    known = {*POD_ANNOTATIONS, *OWN_ANNOTATIONS}
    unknown = sorted(name for name in annotations if name.startswith(PREFIX) and name not in known)
    warnings = [
        f"annotation {name} is not known and has no effect{_nearest(name)}"
        for name in unknown[:_MAX_UNKNOWN_WARNINGS]
    ]
    if more := unknown[_MAX_UNKNOWN_WARNINGS:]:
        warnings.append(f"{len(more)} more annotations of {PREFIX} are not known either")
    return warnings


def _nearest(name: str) -> str:
    short = {known.removeprefix(PREFIX): known for known in POD_ANNOTATIONS}
    found = get_close_matches(name.removeprefix(PREFIX).lower(), short, n=1, cutoff=0.5)
    return f"; did you mean {short[found[0]]}?" if found else ""
