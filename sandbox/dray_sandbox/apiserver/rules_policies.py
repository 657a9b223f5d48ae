"""Defaults and validation of ValidatingAdmissionPolicies and their bindings.

Parameters, audit annotations, excluded rules and names of resources are refused here, unlike on a
real server.
"""

from collections.abc import Iterator, Sequence

from . import matchconditions
from .policies import REASONS
from .rules import ResourceRules, WithStatus
from .rules_webhooks import condition_errors
from .status import FieldError, Object, forbidden_field, invalid, not_supported, required

_ACTIONS = ("Audit", "Deny", "Warn")
_FAILURE_POLICIES = ("Fail", "Ignore")
_UNKNOWN_HERE = "the sandbox does not have this"


class PolicyRules(WithStatus):
    """ValidatingAdmissionPolicy."""

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("failurePolicy", "Fail")
        constraints = spec.get("matchConstraints")
        if constraints is not None:
            constraints.setdefault("matchPolicy", "Equivalent")
            constraints.setdefault("namespaceSelector", {})
            constraints.setdefault("objectSelector", {})
            for rule in constraints.get("resourceRules") or []:
                rule.setdefault("scope", "*")

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        spec = obj["spec"]
        found = list(_absent(spec, "spec", "paramKind", "auditAnnotations"))
        if spec["failurePolicy"] not in _FAILURE_POLICIES:
            found.append(
                not_supported("spec.failurePolicy", spec["failurePolicy"], _FAILURE_POLICIES)
            )
        constraints, field = spec.get("matchConstraints"), "spec.matchConstraints"
        if constraints is None:
            found.append(required(field))
        else:
            found += _absent(constraints, field, "excludeResourceRules")
            for index, rule in enumerate(constraints.get("resourceRules") or []):
                found += _absent(rule, f"{field}.resourceRules[{index}]", "resourceNames")
            if not constraints.get("resourceRules"):
                found.append(required(f"{field}.resourceRules"))
        found += condition_errors(spec.get("matchConditions") or [], "spec.matchConditions")
        for index, variable in enumerate(spec.get("variables") or []):
            found += _named(variable, f"spec.variables[{index}]")
        validations = spec.get("validations") or []
        if not validations:
            why = "validations or auditAnnotations must contain at least one item"
            found += [required("spec.validations", why), required("spec.auditAnnotations", why)]
        for index, validation in enumerate(validations):
            found += _validation(validation, f"spec.validations[{index}]")
        return found


class PolicyBindingRules(ResourceRules):
    """ValidatingAdmissionPolicyBinding."""

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        spec = obj["spec"]
        found = list(_absent(spec, "spec", "paramRef", "matchResources"))
        if not spec.get("policyName"):
            found.append(required("spec.policyName"))
        actions, field = spec.get("validationActions") or [], "spec.validationActions"
        found += [
            not_supported(f"{field}[{index}]", action, _ACTIONS)
            for index, action in enumerate(actions)
            if action not in _ACTIONS
        ]
        if "Deny" in actions and "Warn" in actions:
            found.append(invalid(field, actions, "must not contain both Deny and Warn"))
        if not actions:
            found.append(required(field, "at least one validation action is required"))
        return found


def _absent(obj: Object, field: str, *names: str) -> Iterator[FieldError]:
    for name in names:
        if obj.get(name):
            yield forbidden_field(f"{field}.{name}", _UNKNOWN_HERE)


def _named(variable: Object, field: str) -> Iterator[FieldError]:
    for name in ("name", "expression"):
        if not (variable.get(name) or "").strip():
            yield required(f"{field}.{name}", f"{name} is not specified")
    if problem := matchconditions.syntax_error(variable.get("expression") or '""'):
        yield invalid(f"{field}.expression", variable["expression"], problem)


def _validation(validation: Object, field: str) -> Iterator[FieldError]:
    expression = validation.get("expression") or ""
    if not expression.strip():
        yield required(f"{field}.expression", "expression is not specified")
    elif problem := matchconditions.check(expression):
        yield invalid(f"{field}.expression", expression, problem)
    message_expression = validation.get("messageExpression") or '""'
    if problem := matchconditions.syntax_error(message_expression):
        yield invalid(f"{field}.messageExpression", message_expression, problem)
    message = validation.get("message") or ""
    if message and not message.strip():
        yield invalid(f"{field}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip():
        yield invalid(f"{field}.message", message, "must not contain line breaks")
    reason = validation.get("reason")
    if reason and reason not in REASONS:
        yield not_supported(f"{field}.reason", reason, REASONS)
