# SPDX-License-Identifier: Apache-2.0
"""The names that `make check` tests: class names, predicates and metrics, read from the code."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.packages import PACKAGES, ROOT

MAX_MEANINGS = 2

_PREDICATE = re.compile(r"_*(?:is|has|can)_")
# Methods of the standard containers that change them.
_MUTATING = frozenset(
    {
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "extendleft",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "put",
        "put_nowait",
        "remove",
        "reverse",
        "setdefault",
        "sort",
        "update",
    }
)

# https://prometheus.io/docs/practices/naming/: a unit, `total` for what only rises, or what is counted.
_UNITS = ("total", "seconds", "bytes", "info", "ratio", "connected")
_SHARED = ("vcnode_reloads_total", "vcnode_tasks")
_DAEMONS = ("vnagent", "kubeproxyext", "dnsconfig", "dnswebhook", "katabridge", "guestagent", "process")
_METRIC = re.compile(rf"vcnode_(?:{'|'.join(_DAEMONS)})_[a-z0-9_]*?(?:_(?:{'|'.join(_UNITS)})|s)")


def python_files(folders: Sequence[str] = (*PACKAGES, "tests", "packaging")) -> list[Path]:
    """Our modules, relative to the root."""
    return sorted(path.relative_to(ROOT) for each in folders for path in (ROOT / each).rglob("*.py"))


def overused_class_names(sources: Mapping[Path, str]) -> list[str]:
    """`Name: file, file, file` of each class name that stands for more than `MAX_MEANINGS` things."""
    found = defaultdict(list)
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path))
    return [
        f"{name}: {', '.join(paths)}" for name, paths in sorted(found.items()) if len(paths) > MAX_MEANINGS
    ]


def changing_predicates(path: Path, text: str) -> Iterator[str]:
    """`file:line name` of each `is_`, `has_` or `can_` that changes what its caller can see."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not _PREDICATE.match(node.name):
            continue
        if any(_is_change(inner, _parameters(node)) for inner in ast.walk(node)):
            yield f"{path}:{node.lineno} {node.name}"


def coined_words(sources: Mapping[Path, str]) -> list[str]:
    """`word: name` of each word in a class or module name that is neither standard nor in the glossary."""
    known = _standard_words() | glossary_words()
    return [f"{word}: {name}" for word, name in sorted(_named(sources).items()) if word not in known]


def unused_standard_words(sources: Mapping[Path, str]) -> list[str]:
    """Those that no name has any more."""
    return sorted(_standard_words() - _named(sources).keys())


def _standard_words() -> frozenset[str]:
    return _words((ROOT / "tests" / "standard_words.txt").read_text())


def _named(sources: Mapping[Path, str]) -> dict[str, str]:
    """The words of all class and module names, each with a name that has it."""
    found = {}
    for path, text in sources.items():
        classes = (node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))
        found.update({word: name for name in (path.stem, *classes) for word in _parts(name)})
    return found


def glossary_words() -> frozenset[str]:
    """The words that docs/glossary.md explains, with their plurals."""
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    words = _words(" ".join(rows))
    return words | {f"{word}s" for word in words}


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))


def _parts(name: str) -> list[str]:
    """`TlsConnection` and `tls_connection` have the words tls and connection."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]


def is_metric_name(name: str) -> bool:
    """Whether it is `vcnode_<daemon>_<name>_<unit>`, or one of those that all daemons share."""
    return name in _SHARED or _METRIC.fullmatch(name) is not None


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return frozenset(argument.arg for argument in every)


def _is_change(node: ast.AST, seen: frozenset[str]) -> bool:
    """Whether it assigns to, deletes, or calls a mutating method of an object behind the names in `seen`."""
    if isinstance(node, ast.Assign):
        targets: Sequence[ast.expr] = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _MUTATING and _root(node.func.value) in seen
    else:
        return isinstance(node, ast.Global | ast.Nonlocal)
    return any(isinstance(each, ast.Attribute | ast.Subscript) and _root(each) in seen for each in targets)


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
