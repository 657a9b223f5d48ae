"""How long and how deep a text may be, and how errors are worded and placed, as in Kubernetes."""

import pytest

from dray.cel.errors import CelSyntaxError
from dray.cel.syntax import tree
from dray.cel.syntax.parser import MAX_LENGTH, MAX_NESTING, parse


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000,
        "[" * 10_000,
        "{" * 5_000 + "}" * 5_000,
        "!" * 9_999 + "(" * 200,
        "a" + ".b" * 5_000,
        "1" + "+1" * 5_000,
        "a" + "[0]" * 3_000,
        "f(" * 3_000,
        "a?" * 5_000,
        "a?b:" * 2_500 + "c",
        '"""' + '\\"' * 5_000,
        "'" * 10_001,
        "1" * 10_000,
        "0x" + "f" * 10_000,
        "\ud800",
        "\x00",
        "a" * 1_000_000,
    ],
)
def test_hostile_text_is_a_syntax_error(text):
    with pytest.raises(CelSyntaxError):
        parse(text)


def test_nesting_up_to_the_limit_is_accepted():
    depth = MAX_NESTING - 1
    assert parse("(" * depth + "1" + ")" * depth) == tree.Literal("int", 1)
    assert parse("a" + " && a" * 2_000) == tree.Logical("&&", (tree.Ident("a"),) * 2_001)


DEEPEST = {
    "parentheses": ("(", ")", 249),
    "sums": ("(1 + ", ")", 124),
    "relations": ("(1 < ", ")", 124),
    "lists": ("[", "]", 249),
    "negations": ("!(", ")", 249),
    "branches": ("true ? 1 : ", "", 249),
    "relations of sums of products": ("(1 == 1 + (1 * ", "))", 62),
}


@pytest.mark.parametrize("kind", DEEPEST)
def test_nesting_has_the_limits_of_kubernetes(kind):
    opening, closing, most = DEEPEST[kind]
    suffix = "" if kind == "branches" else " == 1"
    parse(opening * most + "1" + closing * most + suffix)
    with pytest.raises(CelSyntaxError, match="recursion limit exceeded: 250"):
        parse(opening * (most + 1) + "1" + closing * (most + 1) + suffix)


@pytest.mark.parametrize(("text", "most"), [("a{} == 1", 249), ("a{}", 250)])
def test_chains_of_members_have_the_limit_of_kubernetes(text, most):
    parse(text.format(".b" * most))
    with pytest.raises(CelSyntaxError, match="max recursion depth exceeded"):
        parse(text.format(".b" * (most + 1)))


def test_a_text_has_the_length_that_cel_go_reads():
    parse("a" * MAX_LENGTH)
    with pytest.raises(CelSyntaxError, match="size: 100001, limit 100000"):
        parse("a" * (MAX_LENGTH + 1))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a b", "1:3: Syntax error: extraneous input 'b' expecting <EOF>"),
        ("a,b", "1:2: Syntax error: mismatched input ',' expecting <EOF>"),
        ("(1", "1:3: Syntax error: missing ')' at '<EOF>'"),
        ("[1", "1:3: Syntax error: mismatched input '<EOF>' expecting {']', ','}"),
        ("a.in", "1:3: Syntax error: no viable alternative at input '.in'"),
        ("a.true", "1:3: Syntax error: mismatched input 'true' expecting IDENTIFIER"),
        ("'é' @", "1:5: Syntax error: token recognition error at: '@'"),
        ("\n 1 +", "2:5: Syntax error: mismatched input '<EOF>' expecting {'['"),
        ("while", "1:1: reserved identifier: while"),
        ("has(x)", "1:5: invalid argument to has() macro"),
        ("[1].map(1, 2)", "1:9: argument is not an identifier"),
        ("cel.bind(1, 2, 3)", "1:10: cel.bind() variable names must be simple identifiers"),
        ("'a'.sortBy(x, x)", "1:1: sortBy can only be applied to a list"),
    ],
)
def test_errors_are_worded_and_placed_as_in_kubernetes(text, reason):
    with pytest.raises(CelSyntaxError) as caught:
        parse(text)
    assert str(caught.value).startswith(reason)
