"""The selector that an annotated pod gets when it writes none (user guide §5.6).

It has seven clauses in the user guide's order. A guard precedes each, so that a device which lacks
the value that the clause reads does not match. Without the guard, such a device would stop the
scheduling of the whole pod. The clauses are built as trees, so text from a user always stays inside
its string literal.
"""

from dray.api.quantities import Quantity, quantity_of
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr
from dray.cel.syntax.unparser import unparse
from dray.user_guide_form.paths import attribute, capacity, has, quantity, text, whole


def generated_selector(
    model: str | None = None,
    pool: str | None = None,
    tflops: Quantity | None = None,
    vram_bytes: int | None = None,
    qos: str | None = None,
) -> str:
    """The selector for a pod's annotations. A value that is None (or empty) adds no clause.

    ``tflops`` and ``vram_bytes`` are compared with the card's physical capacity, even if the pool
    is oversubscribed: a device never gives one pod more than it has. A device must always be
    Running and not used by another owner.
    """
    terms: list[Expr] = []
    terms += _equals("model", model)
    terms += _equals("pool_name", pool)
    terms += _at_least("tflops", tflops)
    terms += _at_least("vram", None if vram_bytes is None else quantity_of(vram_bytes))
    terms += _equals("qos", qos)
    terms += _equals("phase", "Running")
    terms += _always_equals("used_by", "")
    return unparse(tree.Logical("&&", tuple(terms)))


def pool_selector(pool: str) -> str:
    """Only the clause that keeps a pod in its pool. It is also added to a custom expression."""
    return unparse(tree.Logical("&&", tuple(_always_equals("pool_name", pool))))


def _equals(name: str, wanted: str | None) -> list[Expr]:
    return _always_equals(name, wanted) if wanted else []


def _always_equals(name: str, wanted: str) -> list[Expr]:
    read = attribute(name)
    return [has(read), tree.Binary("==", read, text(wanted))]


def _at_least(name: str, amount: Quantity | None) -> list[Expr]:
    if amount is None:
        return []
    read = capacity(name)
    comparison = tree.Call("compareTo", (quantity(text(str(amount))),), read)
    return [has(read), tree.Binary(">=", comparison, whole(0))]
