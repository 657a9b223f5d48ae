"""Requests of other device classes that may match dray's devices.

A DeviceClass without ``device.driver == …`` matches devices of every driver. The owner taint keeps
kube-scheduler from dray's devices; these rules refuse requests that tolerate it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from dray.api.names import DEVICE_CLASS, DRIVER, OWNER_DRAY, OWNER_TAINT
from dray.cel.errors import CelCompileError
from dray.cel.eval.program import conjuncts
from dray.cel.syntax import tree
from dray.cel.syntax.parser import parse
from dray_webhook.decisions.review import Object
from dray_webhook.decisions.shape import covers_owner_taint, entries
from dray_webhook.decisions.view import View

_ADVICE = (
    "`device.driver == \"…\"` in the class's selectors, or in the request's own, keeps it away"
)


def refuse_tolerating(requests: Sequence[Object], where: str, view: View) -> Iterator[str]:
    """Errors for foreign requests that tolerate the owner taint."""
    for name, entry in _foreign(requests, view):
        for toleration in entry.get("tolerations") or ():
            if covers_owner_taint(toleration):
                yield (
                    f'{where}: request "{name}" of class "{entry.get("deviceClassName", "")}" '
                    f"tolerates {json.dumps(toleration)}, which covers the device taint "
                    f"{OWNER_TAINT}={OWNER_DRAY}, and {_may_match(entry, view)}: remove the "
                    f"toleration; or {_ADVICE}"
                )


def refuse_untainted(requests: Sequence[Object], where: str, view: View) -> Iterator[str]:
    """Errors for foreign requests, if the server drops taints."""
    if view.cluster.device_taints:
        return
    foreign = list(_foreign(requests, view))
    if not foreign or not (names := view.pools_of_dray()):
        return
    for name, entry in foreign:
        yield (
            "this API server drops device taints (DRADeviceTaints is off), so kube-scheduler could "
            f'allocate devices of GPUPool {names} to {where}, request "{name}", while dray decides '
            f"about them: {_may_match(entry, view)}; {_ADVICE}"
        )


@lru_cache(maxsize=1024)
def names_another_driver(expression: str) -> bool:
    """Whether a selector requires, joined by ``&&``, a ``device.driver`` other than dray's."""
    try:
        clauses = conjuncts(parse(expression))
    except CelCompileError:
        return False
    return any(
        isinstance(clause, tree.Binary)
        and clause.operator == "=="
        and any(
            _is_driver(one) and isinstance(other, tree.Literal) and other.value != DRIVER
            for one, other in ((clause.left, clause.right), (clause.right, clause.left))
        )
        for clause in clauses
    )


def _foreign(requests: Sequence[Object], view: View) -> Iterator[tuple[str, Object]]:
    """Requests and subrequests of other classes that may match dray's devices."""
    for name, entry in entries(requests):
        if entry.get("deviceClassName") not in (None, "", DEVICE_CLASS):
            selectors = [*_own(entry), *(_of_class(entry, view) or ())]
            if not any(map(names_another_driver, selectors)):
                yield name, entry


def _may_match(entry: Object, view: View) -> str:
    if _of_class(entry, view) is None:
        return "that class is not known to dray yet (try again)"
    return "nothing in it or in its class keeps it from dray's devices"


def _own(entry: Object) -> Iterable[str]:
    return [
        (selector.get("cel") or {}).get("expression", "")
        for selector in entry.get("selectors") or ()
    ]


def _of_class(entry: Object, view: View) -> tuple[str, ...] | None:
    known = view.classes.get(entry.get("deviceClassName", ""))
    return None if known is None else known.selectors


def _is_driver(node: tree.Expr) -> bool:
    return (
        isinstance(node, tree.Select)
        and node.field == "driver"
        and not node.optional
        and isinstance(node.operand, tree.Ident)
        and node.operand.name == "device"
    )
