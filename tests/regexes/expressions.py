# SPDX-License-Identifier: Apache-2.0
"""All regular expressions of the product, and how each is used.

A `re.compile` is at the top of its module, where its value can be had; whatever else is called of `re`
has its expression in place. Another form is an error here: it would escape the proof. An expression
that can take more than linear time needs a bound of its input, and states it in the line above:

    # regex-input: 256 characters: checked by `_check`
"""

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.packages import PACKAGES, ROOT

_MARK = re.compile(r"\s*# regex-input: ([0-9]{1,7}) characters: \S")
_SEARCHES = frozenset({"search", "sub", "subn", "split", "finditer", "findall"})
_USES = _SEARCHES | {"match", "fullmatch"}


@dataclass(frozen=True)
class Expression:
    """One expression. `bound` is the most characters of its input, if a comment states them."""

    place: str
    pattern: "re.Pattern[Any]"
    uses: frozenset[str]
    bound: int | None = None

    @property
    def is_search(self) -> bool:
        return bool(self.uses & _SEARCHES)

    @property
    def is_full(self) -> bool:
        return self.uses == {"fullmatch"}


def expressions() -> list[Expression]:
    return [
        each
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for each in of_module(path)
    ]


def of_module(path: Path) -> Iterator[Expression]:
    text = path.read_text()
    if not re.search(r"^\s*import re\b", text, re.MULTILINE):
        return
    tree, lines = ast.parse(text), text.splitlines()
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    place = str(path.relative_to(ROOT))
    compiled = {call for call in ast.walk(tree) if isinstance(call, ast.Call) and _called(call) == "compile"}
    for statement in tree.body:
        inside = [call for call in ast.walk(statement) if isinstance(call, ast.Call) and call in compiled]
        if not inside:
            continue
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            raise ValueError(
                f"{place}:{inside[0].lineno}: an expression is compiled at the top of its module"
            )
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        assert isinstance(target, ast.Name), f"{place}:{statement.lineno}"
        patterns = list(_patterns(getattr(importlib.import_module(name), target.id)))
        assert len(patterns) == len(inside), f"{place}:{statement.lineno}: {len(patterns)} expressions"
        uses = _uses(tree, target.id) if len(patterns) == 1 else _USES
        for pattern in patterns:
            yield Expression(f"{place}:{statement.lineno}", pattern, uses or _USES, _bound(lines, statement))
        compiled -= set(inside)
    for call in ast.walk(tree):
        if (used := _called(call)) in _USES:
            assert isinstance(call, ast.Call)
            assert isinstance(call.args[0], ast.Constant), f"{place}:{call.lineno}: not in place"
            flags = _flags(call)
            yield Expression(
                f"{place}:{call.lineno}",
                re.compile(call.args[0].value, flags),
                frozenset({used}),
                _bound(lines, call),
            )


def _flags(call: ast.Call) -> int:
    names = {node.attr for arg in call.args[1:] for node in ast.walk(arg) if isinstance(node, ast.Attribute)}
    found = re.NOFLAG
    for name in names & set(re.RegexFlag.__members__):
        found |= re.RegexFlag[name]
    return int(found)


def _called(node: ast.AST) -> str:
    """The name of the called function of `re`; empty for another call."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if isinstance(owner, ast.Name) and owner.id == "re":
            return node.func.attr
    return ""


def _uses(tree: ast.Module, name: str) -> frozenset[str]:
    """The methods that are called on it; all if it is passed on."""
    attributes = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
    ]
    mentioned = sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))
    used = frozenset(attributes) & _USES
    return used if mentioned == 1 + len(attributes) else _USES


def _patterns(value: object) -> Iterator["re.Pattern[Any]"]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _patterns(each)


def _bound(lines: list[str], node: ast.stmt | ast.Call) -> int | None:
    match = _MARK.match(lines[node.lineno - 2])
    return int(match[1]) if match else None
