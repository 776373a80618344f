# SPDX-License-Identifier: Apache-2.0
"""Which `is_`, `has_` and `can_` functions change what their caller can see, found by reading them."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

Function = ast.FunctionDef | ast.AsyncFunctionDef

_PREDICATE = re.compile(r"_*(?:is|has|can)_")
# Methods that change what they are called on: of the standard containers, iterators, metrics, tasks.
_MUTATING = frozenset(
    re.findall(
        r"\w+",
        """
    acquire add append appendleft cancel clear close dec difference_update discard extend extendleft inc
    insert intersection_update move_to_end notify notify_all observe pop popitem popleft put put_nowait
    release remove reverse rotate send set_exception set_result setdefault sort symmetric_difference_update
    update write
    """,
    )
)
# So do methods whose name begins with such a verb, wherever their class is.
_MUTATING_NAME = re.compile(
    r"_*(?:try|take|evict|make|mark|add|remove|set|reset|drop|discard|forget|note|record|reserve|renew"
    r"|acquire|release|charge|spend|count|increment|update|store|save|start|stop|close|cancel)_"
)
_MUTATING_FUNCTIONS = frozenset(
    {"setattr", "delattr", "next", "anext", "heappush", "heappop", "heapreplace", "heapify", "insort"}
)
# What these return is a part of what they are called on.
_VIEWS = frozenset({"get", "values", "items", "keys"})


def changing(tree: ast.Module, classes: Iterable[ast.ClassDef]) -> Iterator[tuple[str, int]]:
    """The name and line of each that a module or one of its classes has."""
    own = dict(_functions(tree.body))
    scopes: list[ast.Module | ast.ClassDef] = [tree, *classes]
    for scope in scopes:
        methods = dict(_functions(scope.body))
        siblings = own | {f"self.{name}": function for name, function in methods.items()}
        for name, function in methods.items():
            if _PREDICATE.match(name) and _PredicateReader(siblings).changes(
                function, set(_parameters(function))
            ):
                yield name, function.lineno


def _functions(body: Iterable[ast.stmt]) -> Iterator[tuple[str, Function]]:
    return ((node.name, node) for node in body if isinstance(node, Function))


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


class _PredicateReader:
    """`siblings` are the functions of the module, and with `self.` before their names those of the class."""

    def __init__(self, siblings: Mapping[str, Function]) -> None:
        self._siblings = siblings
        self._read: set[tuple[str, frozenset[str]]] = set()

    def changes(self, function: Function, seen: set[str]) -> bool:
        """Whether it changes what the names in `seen` lead to, itself or by a sibling that it calls."""
        self._read.add((function.name, frozenset(seen)))
        nodes = list(ast.walk(function))
        seen = seen | _aliases(nodes, seen)
        return any(_is_change(node, seen) or self._calls_change(node, seen) for node in nodes)

    def _calls_change(self, node: ast.AST, seen: set[str]) -> bool:
        if isinstance(node, ast.Call):
            called, passed = node.func, [*node.args, *(each.value for each in node.keywords)]
        elif isinstance(node, ast.Attribute):
            called, passed = node, []
        else:
            return False
        name = ast.unparse(called) if isinstance(called, ast.Name | ast.Attribute) else ""
        sibling = self._siblings.get(name)
        if sibling is None:
            return False
        parameters = _parameters(sibling)
        if name.startswith("self."):
            passed = [ast.Name("self"), *passed]
        names = {name for name, value in zip(parameters, passed, strict=False) if _root(value) in seen}
        return (sibling.name, frozenset(names)) not in self._read and self.changes(sibling, names)


def _aliases(nodes: list[ast.AST], seen: set[str]) -> set[str]:
    """The local names of parts of what the names in `seen` lead to."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            pairs = [(node.target, node.iter)]
        elif isinstance(node, ast.NamedExpr):
            pairs = [(node.target, node.value)]
        else:
            continue
        found |= {
            name.id
            for target, value in pairs
            if _root(value) in seen | found
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
    return found


def _is_change(node: ast.AST, seen: set[str]) -> bool:
    """Whether it assigns to, deletes, or calls a mutating method of what the names in `seen` lead to."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        return not isinstance(node.ctx, ast.Load) and _root(node) in seen
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Global | ast.Nonlocal)
    if isinstance(node.func, ast.Attribute):
        name = node.func.attr
        if (name in _MUTATING or _MUTATING_NAME.match(name)) and _root(node.func.value) in seen:
            return True
    else:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
    is_changing = name in _MUTATING_FUNCTIONS or name in ("__setattr__", "__delattr__")
    return is_changing and bool(node.args) and _root(node.args[0]) in seen


def _root(node: ast.expr) -> str | None:
    """The name that leads to it: `self` for `self.cells[0].get(key)`."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
            node = node.func.value
        else:
            return node.id if isinstance(node, ast.Name) else None
