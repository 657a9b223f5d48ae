"""The user guide's pages have the texts of webhook and policies: all, and no others."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dray.api import placement, preference
from dray.cel.syntax import tree
from dray.cel.syntax.parser import parse
from dray_sandbox.chart import admission_policies
from dray_webhook.decisions import (
    annotation_values,
    annotations,
    claims,
    containers,
    cpu_tasks,
    device_plugin,
    gpu_resources,
    groups,
    injection,
    pod_updates,
    pods,
    pools,
    request_builder,
    riders,
    selectors,
    shape,
    volcano,
)
from dray_webhook.decisions.device_plugin import WITHOUT_CLAIMS
from dray_webhook.decisions.pools import NO_OTHER_WAY
from dray_webhook.service import handler

GUIDE = Path(__file__).parents[3] / "docs" / "user-guide"
PAGES = (GUIDE / "annotations.md", GUIDE / "groups.md")
MODULES = (
    annotations,
    annotation_values,
    containers,
    cpu_tasks,
    device_plugin,
    gpu_resources,
    pools,
    selectors,
    injection,
    request_builder,
    shape,
    pods,
    pod_updates,
    claims,
    groups,
    riders,
    volcano,
    handler,
    preference,
    placement,
)
BLOCK = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHORTEST = 28
"""Characters of a text that is a sentence to a person, and no piece of one."""
NO_TEXT = "system:serviceaccount:"
PIECES = (NO_OTHER_WAY, WITHOUT_CLAIMS)
"""Constants that are parts of sentences."""


def template(node: ast.expr, module: ModuleType) -> str:
    """A string expression as text: constants of the module spelt out, the rest as ``…``."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(template(part, module) for part in parts)
        case ast.FormattedValue(value=value):
            return template(value, module)
        case ast.Name(id=name) if isinstance(vars(module).get(name), str | int):
            return str(vars(module)[name])
        case ast.BinOp(left=left, right=right):
            return template(left, module) + template(right, module)
        case _:
            return "…"


def texts(module: ModuleType) -> Iterator[str]:
    """Every sentence that a module can say."""
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    pieces = {
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.FormattedValue | ast.BinOp | ast.Expr)
        for part in ast.iter_child_nodes(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) and node not in pieces:
            text = normal(template(node, module))
            stated = text.replace("…", "")
            is_part = text in PIECES or stated.startswith(NO_TEXT)
            if len(stated) >= SHORTEST and " " in stated and not is_part:
                yield text


def policy_texts() -> Iterator[str]:
    """Every sentence that the chart's admission policies can say."""
    for policy in admission_policies():
        for validation in policy["spec"].get("validations", ()):
            if "message" in validation:
                yield normal(validation["message"])
            if "messageExpression" in validation:
                yield normal(spelt(parse(validation["messageExpression"])))


def spelt(node: tree.Expr) -> str:
    """An expression as text: literals, the rest as ``…``."""
    match node:
        case tree.Literal(value=str(text)):
            return text
        case tree.Binary(operator="+", left=left, right=right):
            return spelt(left) + spelt(right)
        case _:
            return "…"


def normal(text: str) -> str:
    return re.sub(r"…(\s*…)*", "…", " ".join(text.split()))


def documented() -> set[str]:
    blocks = [block for page in PAGES for block in BLOCK.findall(page.read_text("utf-8"))]
    return {normal(each) for block in blocks for each in re.split(r"\n(?! )", block) if each}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_text_of_the_webhook_is_documented(module: ModuleType) -> None:
    """Add what is missing to the page, in a ``text`` block; ``…`` stands for what varies."""
    assert set(texts(module)) - documented() == set()


def test_every_text_of_the_policies_is_documented() -> None:
    assert set(policy_texts()) - documented() == set()


def test_the_page_has_no_text_that_nobody_says() -> None:
    stated = {text for module in MODULES for text in texts(module)}
    assert documented() - stated - set(policy_texts()) == set()
