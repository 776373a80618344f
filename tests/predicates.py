# SPDX-License-Identifier: Apache-2.0
"""Which `is_`, `has_` and `can_` functions change what their caller can see, found by reading them."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, repeat

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
# So do methods whose name is or begins with such a verb, wherever their class is; `text.count()` only reads.
_MUTATING_NAME = re.compile(
    r"_*(?:(?:try|take|evict|make|mark|add|remove|set|reset|drop|discard|forget|note|record|reserve|renew"
    r"|acquire|release|charge|spend|consume|refill|increment|update|store|save|start|stop|close|cancel)"
    r"(?:_|$)|count_)"
)
_MUTATING_FUNCTIONS = frozenset(
    {"setattr", "delattr", "next", "anext", "heappush", "heappop", "heapreplace", "heapify", "insort"}
)
# What these return is a part of what they are called on.
_VIEWS = frozenset({"get", "values", "items", "keys"})


@dataclass(frozen=True, slots=True)
class _Owned:
    """A function, and the class around it; empty for none."""

    function: Function
    owner: str
    is_method: bool

    def binds(self, value: ast.expr) -> bool:
        """Whether `value.name()` passes `value` before the arguments."""
        decorators = {ast.unparse(each) for each in self.function.decorator_list}
        if "staticmethod" in decorators:
            return False
        return "classmethod" in decorators or ast.unparse(value) in ("self", "cls")

    def passed(
        self, values: Iterable[ast.expr], keywords: Iterable[ast.keyword]
    ) -> Iterator[tuple[str, ast.expr]]:
        """The parameters of a call with what they get."""
        arguments = self.function.args
        rest, others = (each.arg if each else "" for each in (arguments.vararg, arguments.kwarg))
        names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        yield from zip(chain(names, repeat(rest)), values, strict=False)
        parameters = _parameters(self.function)
        for each in keywords:
            yield (each.arg if each.arg in parameters else others, each.value)


def changing(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The name and line of each predicate of a module that does, wherever it is defined."""
    functions = list(_functions(tree))
    known = {f"{each.owner}." * each.is_method + each.function.name: each for each in functions}
    for each in functions:
        function = each.function
        if _PREDICATE.match(function.name):
            seen = frozenset(_parameters(function)) | _names_from_outside(function)
            if _PredicateReader(known).changes(each, seen):
                yield function.name, function.lineno


def _functions(node: ast.AST, owner: str = "", *, is_method: bool = False) -> Iterator[_Owned]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, child.name, is_method=True)
        elif isinstance(child, Function):
            yield _Owned(child, owner, is_method)
            yield from _functions(child, owner)
        elif not isinstance(child, ast.expr):
            yield from _functions(child, owner, is_method=is_method)


def _parameters(function: Function) -> list[str]:
    return [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]


class _PredicateReader:
    """`known` are the functions of the module, methods with their class: `Pods.add`."""

    def __init__(self, known: Mapping[str, _Owned]) -> None:
        self._known = known
        self._read: set[tuple[Function, frozenset[str]]] = set()

    def changes(self, owned: _Owned, seen: frozenset[str]) -> bool:
        """Whether it, or a function of its module that it calls, changes what the names in `seen` lead to."""
        if (owned.function, seen) in self._read:
            return False
        self._read.add((owned.function, seen))
        nodes = list(ast.walk(owned.function))
        seen |= _aliases(nodes, seen)
        return any(_is_change(node, seen) or self._calls_change(node, owned, seen) for node in nodes)

    def _calls_change(self, node: ast.AST, caller: _Owned, seen: frozenset[str]) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called, values, keywords = node.func, node.args, node.keywords
        elif isinstance(node, ast.Attribute):
            called, values, keywords = node, [], []
        else:
            return False
        name = re.sub(r"^(?:self|cls)\.", f"{caller.owner}.", ast.unparse(called))
        known = self._known.get(name)
        if known is None:
            return False
        first = [called.value] if isinstance(called, ast.Attribute) and known.binds(called.value) else []
        passed = {name for name, value in known.passed([*first, *values], keywords) if _root(value) in seen}
        outside = _names_from_outside(known.function)
        if known.function in ast.walk(caller.function):
            outside &= seen
        return self.changes(known, frozenset(passed | outside))


def _names_from_outside(function: Function) -> set[str]:
    """The names that a function reads and binds nowhere."""
    read: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
    return read - bound


def _aliases(nodes: list[ast.AST], seen: frozenset[str]) -> set[str]:
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


def _is_change(node: ast.AST, seen: frozenset[str]) -> bool:
    """Whether it assigns to, deletes, or calls a mutating method of what the names in `seen` lead to."""
    if isinstance(node, ast.AugAssign):
        return _root(node.target) in seen
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
