"""DeviceTaintRules: taints that an administrator sets on devices."""

from collections.abc import Sequence

from . import metadata
from .conditions import conditions_errors
from .devicenames import driver_errors, label_errors, pool_errors
from .deviceparts import taint_errors
from .rules import WithStatus
from .status import FieldError, Object, too_many

_MAX_CONDITIONS = 8
_SELECTED = (("driver", driver_errors), ("pool", pool_errors), ("device", label_errors))


class TaintRuleRules(WithStatus):
    """DeviceTaintRule."""

    def default(self, obj: Object) -> None:
        taint = obj.setdefault("spec", {}).setdefault("taint", {})
        taint.setdefault("timeAdded", metadata.now())
        obj.setdefault("status", {})

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        obj["status"] = {}

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        field, selector = "spec.deviceSelector", obj["spec"].get("deviceSelector") or {}
        found: list[FieldError] = []
        for name, check in _SELECTED:
            if name in selector:
                found += check(selector[name], f"{field}.{name}")
        return found + taint_errors(obj["spec"]["taint"], "spec.taint")

    def validate_update(self, new: Object, old: Object) -> Sequence[FieldError]:
        return self.validate_create(new)

    def validate_status(self, new: Object, old: Object) -> Sequence[FieldError]:
        field, conditions = "status.conditions", new["status"].get("conditions") or []
        found = conditions_errors(conditions, field)
        if len(conditions) > _MAX_CONDITIONS:
            found.append(too_many(field, len(conditions), _MAX_CONDITIONS))
        return found
