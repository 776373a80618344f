# SPDX-License-Identifier: Apache-2.0
"""Which `is_`, `has_` and `can_` functions change what their caller can see, found by reading them."""

import ast
import asyncio
import builtins
import collections
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from pathlib import Path

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
# And functions, of their first argument.
_MUTATING_FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        """
    __delattr__ __setattr__ anext delattr delitem heapify heappop heappush heappushpop heapreplace iadd iand
    iconcat ilshift imul insort insort_left insort_right ior irshift isub ixor next setattr setitem shuffle
    """,
    )
)
# What these return is a part of what they are called on.
_VIEWS = frozenset({"get", "values", "items", "keys"})
# What these pass on in turn is a part of their arguments.
_ITERATING = frozenset({"enumerate", "filter", "iter", "list", "reversed", "set", "sorted", "tuple", "zip"})
# `get` of a dict and `done` of a task change nothing, whatever ours do.
_STANDARD = frozenset(
    name
    for each in (
        asyncio.Future,
        bytearray,
        collections.deque,
        dict,
        frozenset,
        int,
        list,
        memoryview,
        set,
        str,
        re.Pattern,
        Path,
    )
    for name in dir(each)
)
# What it changes is the number of its request to the kernel.
_READING = frozenset({"tables"})


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


def changing(tree: ast.Module, mutating: Set[str] = frozenset()) -> Iterator[tuple[str, int]]:
    """The name and line of each predicate of a module that does, wherever it is defined.

    `mutating` are names of methods of ours that change what they are called on.
    """
    functions = list(_functions(tree))
    found = [each for each in functions if _PREDICATE.match(each.function.name)]
    if not found:
        return  # most modules of tests
    imported = _imported(tree)
    known = _by_name(functions)
    for each in found:
        function = each.function
        seen = frozenset(_parameters(function)) | _names_from_outside(function)
        if _PredicateReader(known, mutating, imported).changes(each, seen):
            yield function.name, function.lineno


def mutating_methods(trees: Iterable[ast.Module]) -> Set[str]:
    """The names of methods that change their object, in each class that has a method of the name."""
    methods = [
        (each, known)
        for tree in trees
        for known in [_by_name(_functions(tree))]
        for each in known.values()
        if each.is_method and each.function.args.args and not _is_declaration(each.function)
    ]
    names = {each.function.name for each, _ in methods if not each.function.name.endswith("__")}
    names -= _STANDARD | _READING
    found: set[str] = set()
    while True:
        reading = {
            each.function.name
            for each, known in methods
            if each.function.name in names - found
            and not _PredicateReader(known, found).changes(each, frozenset({each.function.args.args[0].arg}))
        }
        if names - reading == found:
            return found
        found = names - reading


def _imported(tree: ast.Module) -> Set[str]:
    return {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def _is_declaration(function: Function) -> bool:
    """Whether it has no body of its own: of a protocol, or abstract."""
    return all(
        isinstance(each, ast.Pass | ast.Raise)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        for each in function.body
    )


def _by_name(functions: Iterable[_Owned]) -> Mapping[str, _Owned]:
    """Methods with their class: `Pods.add`."""
    return {f"{each.owner}." * each.is_method + each.function.name: each for each in functions}


def _functions(node: ast.AST, owner: str = "", *, is_method: bool = False) -> Iterator[_Owned]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, child.name, is_method=True)
        elif isinstance(child, Function):
            yield _Owned(child, owner, is_method)
            yield from _functions(child, owner)
        elif isinstance(child, ast.Assign | ast.AnnAssign) and isinstance(child.value, ast.Lambda):
            for each in _predicates(child, child.value):
                yield _Owned(each, owner, is_method)
        elif not isinstance(child, ast.expr):
            yield from _functions(child, owner, is_method=is_method)


def _predicates(node: ast.Assign | ast.AnnAssign, value: ast.Lambda) -> Iterator[ast.FunctionDef]:
    """As functions: `is_full = lambda self: ...`."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Name) and _PREDICATE.match(target.id):
            function = ast.FunctionDef(target.id, value.args, [ast.Return(value.body)], [])
            yield ast.copy_location(function, node)


def _parameters(function: Function) -> list[str]:
    return [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]


class _PredicateReader:
    """`known` are the functions of the module, methods with their class: `Pods.add`."""

    def __init__(
        self, known: Mapping[str, _Owned], mutating: Set[str], imported: Set[str] = frozenset()
    ) -> None:
        self._known = known
        self._mutating = mutating
        self._imported = imported
        self._read: set[tuple[Function, frozenset[str]]] = set()
        self._returned: dict[Function, frozenset[str]] = {}

    def changes(self, owned: _Owned, seen: frozenset[str]) -> bool:
        """Whether it, or a function of its module that it calls, changes what the names in `seen` lead to."""
        if (owned.function, seen) in self._read:
            return False
        self._read.add((owned.function, seen))
        nodes = _nodes(owned.function)
        seen |= self._aliases(nodes, owned, seen)
        return any(
            self._changes_at(node, owned, seen) or self._calls_change(node, owned, seen) for node in nodes
        )

    def _calls_change(self, node: ast.AST, caller: _Owned, seen: frozenset[str]) -> bool:
        called = self._called(node, caller)
        if called is None:
            return False
        known, pairs = called
        passed = {name for name, value in pairs if self._leads(value, caller, seen)}
        outside = _names_from_outside(known.function)
        if known.function in _nodes(caller.function):
            outside &= seen
        return self.changes(known, frozenset(passed | outside))

    def _called(self, node: ast.AST, caller: _Owned) -> tuple[_Owned, list[tuple[str, ast.expr]]] | None:
        """The function of this module that it calls, or reads as a property, and what its parameters get."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called, values, keywords = node.func, node.args, node.keywords
        elif isinstance(node, ast.Attribute):
            called, values, keywords = node, [], []
        else:
            return None
        known = self._known.get(re.sub(r"^(?:self|cls)\.", f"{caller.owner}.", ast.unparse(called)))
        if known is None:
            return None
        first = [called.value] if isinstance(called, ast.Attribute) and known.binds(called.value) else []
        return known, list(known.passed([*first, *values], keywords))

    def _aliases(self, nodes: list[ast.AST], caller: _Owned, seen: frozenset[str]) -> set[str]:
        """The local names of parts of what the names in `seen` lead to."""
        found: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                pairs = [(node.target, node.value)]
            elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                pairs = [(node.target, each) for each in _passed_on(node.iter)]
            elif isinstance(node, ast.NamedExpr):
                pairs = [(node.target, node.value)]
            else:
                continue
            found |= {
                name.id
                for target, value in pairs
                if self._leads(value, caller, seen | found)
                for name in ast.walk(target)
                if isinstance(name, ast.Name)
            }
        return found

    def _changes_at(self, node: ast.AST, caller: _Owned, seen: frozenset[str]) -> bool:
        """Whether it assigns to, deletes, or calls a mutating method of what the names in `seen` lead to."""
        if isinstance(node, ast.AugAssign):
            return self._leads(node.target, caller, seen)
        if isinstance(node, ast.Attribute | ast.Subscript):
            return not isinstance(node.ctx, ast.Load) and self._leads(node, caller, seen)
        if not isinstance(node, ast.Call):
            return isinstance(node, ast.Global | ast.Nonlocal)
        if isinstance(node.func, ast.Attribute):
            name, value = node.func.attr, node.func.value
            is_mutating = name in _MUTATING or _MUTATING_NAME.match(name) is not None
            is_unbound = isinstance(value, ast.Name) and hasattr(builtins, value.id)  # list.append(cells, 1)
            if is_mutating and not is_unbound and self._leads(value, caller, seen):
                return True
            if name in self._mutating and self._leads(value, caller, seen - self._imported):
                return True
            is_mutating = is_mutating and is_unbound
        else:
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            is_mutating = False
        if not is_mutating and name not in _MUTATING_FUNCTIONS:
            return False
        return any(self._leads(each, caller, seen) for each in node.args[:1])

    def _leads(self, node: ast.expr, caller: _Owned, seen: Set[str]) -> bool:
        return not seen.isdisjoint(self._roots(node, caller))

    def _roots(self, node: ast.expr, caller: _Owned) -> set[str]:
        """The names that may lead to it: `self` for `self.cells[0].get(key)`, both for `self.a or key`."""
        parts: list[ast.expr] = []
        if isinstance(node, ast.Name):
            return {node.id}
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.NamedExpr | ast.Await):
            parts = [node.value]
        elif isinstance(node, ast.BoolOp):
            parts = node.values
        elif isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
            parts = [node.func.value]
        elif called := self._called(node, caller):
            known, pairs = called
            parts = [value for name, value in pairs if name in self._parameters_returned(known)]
        return set().union(*(self._roots(each, caller) for each in parts))

    def _parameters_returned(self, owned: _Owned) -> frozenset[str]:
        """The parameters that its return value may share objects with."""
        function = owned.function
        if function not in self._returned:
            self._returned[function] = frozenset()
            nodes = _nodes(function)
            roots = {
                root
                for node in nodes
                if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and node.value
                for root in self._roots(node.value, owned)
            }
            self._returned[function] = frozenset(
                each
                for each in _parameters(function)
                if roots & {each, *self._aliases(nodes, owned, frozenset({each}))}
            )
        return self._returned[function]


def _passed_on(iterated: ast.expr) -> list[ast.expr]:
    """What has the values that a loop gets."""
    if (
        isinstance(iterated, ast.Call)
        and isinstance(iterated.func, ast.Name)
        and iterated.func.id in _ITERATING
    ):
        return [part for each in iterated.args for part in _passed_on(each)]
    return [iterated]


@cache
def _nodes(function: Function) -> list[ast.AST]:
    return list(ast.walk(function))


@cache
def _names_from_outside(function: Function) -> Set[str]:
    """The names that a function reads and binds nowhere."""
    read: set[str] = set()
    bound: set[str] = set()
    for node in _nodes(function):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
    return read - bound
