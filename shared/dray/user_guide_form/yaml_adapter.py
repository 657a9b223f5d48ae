"""The adapter to ruamel.yaml: reads and writes documents, and keeps comments and key order."""

import io
import itertools
import re
from collections.abc import Iterator, MutableMapping
from itertools import pairwise
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarint import ScalarInt
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString
from ruamel.yaml.tokens import CommentToken

from dray.api.errors import InvalidInputError

Mapping = MutableMapping[str, Any]
_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_END = re.compile(r"^\.\.\.[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_NO_FOLDING = 1 << 16
_MOST_LEVELS = 100
_MOST_VALUES = 1_000_000
_BOOLS_OF_YAML_1_1 = {"yes": True, "on": True, "no": False, "off": False}


class YamlError(InvalidInputError):
    """The text is not YAML."""


class _NewSequence(CommentedSeq):
    """A sequence that was not in the text. Its dash indents its content."""


class _Representer(RoundTripRepresenter):
    """Writes new sequences like those that were read."""


class _Constructor(RoundTripConstructor):
    """Keeps dates as text, as Kubernetes does."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", RoundTripConstructor.construct_yaml_str)
_Representer.add_representer(_NewSequence, RoundTripRepresenter.represent_list)


def split(text: str) -> list[str]:
    """The documents of a stream as text, each with the ``---`` and ``...`` around it, if there are
    any."""
    starts = [match.start() for match in _SEPARATOR.finditer(text)]
    ends = [match.end() for match in _END.finditer(text)]
    bounds = sorted({0, *starts, *ends, len(text)})
    return [text[start:end] for start, end in pairwise(bounds)]


def load(document: str, *, strict: bool = True) -> Any:
    """The content of one document from ``split``; None if it is empty.

    Without ``strict``, the first of duplicate keys is used.

    Raises:
        YamlError: not YAML, with line and column within the document; or its aliases make it a
            thousand times as large as its text, or endless.
    """
    yaml = _yaml(document)
    yaml.allow_duplicate_keys = not strict
    try:
        content = yaml.load(_without_separator(document))
    except MaxDepthExceededError as error:
        raise YamlError(f"nested too deeply: expected {_MOST_LEVELS} levels at most") from error
    except YAMLError as error:
        raise YamlError(f"not YAML: {_in_one_line(error)}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        # Errors in the library itself, for example for a tag !!int before another type.
        raise YamlError(f"a value is not what its tag says: {_in_one_line(error)}") from error
    plain(content)
    return content


def dump(content: Any, original: str) -> str:
    """``content`` as text, with the indentation, line ends and separators of ``original``."""
    out = io.StringIO()
    if _indents_sequences(original):
        _indent_comments(content, 0, set())
    _yaml(original).dump(content, out)
    separator = "---\n" if _SEPARATOR.match(original) else ""
    end = "...\n" if _END.search(original) else ""
    text = separator + out.getvalue() + end
    return text.replace("\n", "\r\n") if "\r\n" in original else text


def mapping() -> Mapping:
    """A new mapping that remembers its order."""
    found: Mapping = CommentedMap()
    return found


def sequence(items: list[Any]) -> list[Any]:
    """A new sequence."""
    found: list[Any] = _NewSequence(items)
    return found


def short_sequence(items: list[Any]) -> list[Any]:
    """A new sequence that is written in brackets."""
    found = CommentedSeq(items)
    found.fa.set_flow_style()
    result: list[Any] = found
    return result


def quoted(text: str) -> str:
    """A string that is written in quotes, as quantities should be."""
    found: str = DoubleQuotedScalarString(text)
    return found


def like(text: str, original: str) -> str:
    """``text`` in the style of ``original``: a literal block if ``original`` was one."""
    if isinstance(original, LiteralScalarString) or "\n" in text:
        found: str = LiteralScalarString(text)
        return found
    return text


def append(target: Mapping, key: str, value: Any) -> None:
    """Put ``key`` last. Comments that were after the last value stay at the end."""
    before = _last_leaf(target)
    target[key] = value
    after = _last_leaf(target)
    if before is None or after is None:
        return
    comments = before[0].ca.items.get(before[1])
    trailing = comments[2] if comments else None
    if trailing is None or "\n" not in trailing.value.rstrip("\n"):
        return
    same_line, _, following = trailing.value.partition("\n")
    mark, column = trailing.start_mark, trailing.column
    comments[2] = CommentToken(same_line + "\n", mark, column=column) if same_line else None
    moved = CommentToken("\n" + following, mark, column=0)
    after[0].ca.items[after[1]] = [None, None, moved, None]


def _last_leaf(node: Mapping) -> tuple[CommentedMap, str] | None:
    """The mapping and key of the last value below ``node`` in the text."""
    while isinstance(node, CommentedMap) and node:
        key, value = list(node.items())[-1]
        if not isinstance(value, CommentedMap) or not value or value.fa.flow_style():
            return node, key
        node = value
    return None


def insert_after(target: Mapping, after: str, key: str, value: Any) -> None:
    """Put ``key`` after ``after``, or first if ``after`` is absent."""
    at = list(target).index(after) + 1 if after in target else 0
    if at == len(target):
        append(target, key, value)
    elif isinstance(target, CommentedMap):
        target.insert(at, key, value)
    else:
        target[key] = value


def rename(target: Mapping, old: str, new: str, value: Any) -> None:
    """Replace key ``old`` by ``new`` in the same place, and keep its comments."""
    at = list(target).index(old)
    comment = target.ca.items.pop(old, None) if isinstance(target, CommentedMap) else None
    del target[old]
    if isinstance(target, CommentedMap):
        target.insert(at, new, value)
        if comment is not None:
            target.ca.items[new] = comment
    else:
        target[new] = value


def plain(content: Any) -> Any:
    """``content`` as dicts, lists and plain scalars, for JSON.

    Scalars have the same meaning as in kubectl, which reads YAML 1.1: ``on`` is true, ``0644`` is
    octal.

    Raises:
        YamlError: aliases make it too large.
    """
    return _plain(content, itertools.count(), 0)


def _plain(content: Any, counted: Iterator[int], level: int) -> Any:
    if next(counted) > _MOST_VALUES:
        raise YamlError(f"aliases blow it up to more than {_MOST_VALUES} values")
    if level > _MOST_LEVELS:
        raise YamlError(f"aliases nest it in more than {_MOST_LEVELS} levels")
    if isinstance(content, MutableMapping):
        return {str(key): _plain(value, counted, level + 1) for key, value in content.items()}
    if isinstance(content, list):
        return [_plain(item, counted, level + 1) for item in content]
    return _plain_scalar(content)


def _plain_scalar(content: Any) -> Any:
    if type(content) is str:  # quoted strings are of other types
        lower = content.lower()
        is_bool = lower in _BOOLS_OF_YAML_1_1 and content in (lower, lower.title(), lower.upper())
        return _BOOLS_OF_YAML_1_1[lower] if is_bool else content
    if isinstance(content, ScalarInt) and _is_octal(content):
        return int(str(content), 8)
    for kind in (bool, int, float, str):
        if isinstance(content, kind):
            return kind(content)
    return content if content is None else str(content)


def _is_octal(number: ScalarInt) -> bool:
    """Whether it is written with leading zeros."""
    return bool(getattr(number, "_width", None)) and set(str(number)) <= set("-01234567")


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).partition("To suppress this check")[0].split())


def _indent_comments(node: Any, by: int, moved: set[int]) -> None:
    """Move each comment once, by as many columns as the text next to it has moved."""
    if not isinstance(node, (CommentedMap, CommentedSeq)):
        return
    inner = by + 2 if isinstance(node, _NewSequence) else by
    for token in _comment_tokens([node.ca.comment, list(node.ca.items.values())]):
        if id(token) not in moved:
            moved.add(id(token))
            token.column = token.column + inner
    for child in node.values() if isinstance(node, CommentedMap) else node:
        _indent_comments(child, inner, moved)


def _comment_tokens(found: Any) -> Iterator[CommentToken]:
    if isinstance(found, CommentToken):
        yield found
    elif isinstance(found, list):
        for inner in found:
            yield from _comment_tokens(inner)


def _yaml(document: str) -> YAML:
    yaml = YAML()
    yaml.Representer = _Representer
    yaml.Constructor = _Constructor
    yaml.preserve_quotes = True
    yaml.width = _NO_FOLDING
    yaml.max_depth = _MOST_LEVELS
    yaml.composer.warn_double_anchors = False  # YAML allows them
    if _indents_sequences(document):
        yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _without_separator(document: str) -> str:
    # Replaced by blanks, not removed: error messages count columns.
    return _SEPARATOR.sub("   ", document, count=1) if document.startswith("---") else document


def _indents_sequences(document: str) -> bool:
    """Whether the items of the first sequence are indented more than their key."""
    for key, item in _pairs(document):
        return len(item) - len(item.lstrip()) > len(key) - len(key.lstrip())
    return False


def _pairs(document: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in document.splitlines() if line.strip() and "#" not in line[:1]]
    lines = [line for line in lines if not line.lstrip().startswith("#")]
    for above, line in pairwise(lines):
        if line.lstrip().startswith("- ") and above.rstrip().endswith(":"):
            yield above, line
