# SPDX-License-Identifier: Apache-2.0
"""Predicates that change what their caller can see are found, also where a helper does it."""

import ast

import pytest

from tests import predicates


def _is_changing(text: str) -> bool:
    return bool(list(predicates.changing(ast.parse(text))))


@pytest.mark.parametrize(
    "body",
    [
        "return self.count > 1",
        "found = []; found.append(key); return bool(found)",
        "found = list(self.cells); found.pop(); return bool(found)",
        "return key.index(1)",
        "return any(each.is_open for each in self.cells)",
        "a, b = self.pair; return a == b",
        "return next(iter(self.cells), None) is None",
        "return len(self.cells.get(key)) > 1",
        "found = 0; found += 1; return bool(found)",
        "found = []; add = lambda: found.append(1); add(); return bool(found)",
        "return self.cells.count(1) == key.count('/')",
        "cells = [] or list(self.cells); cells.append(1)",
        "cells = []; random.shuffle(cells); list.append(cells, 1)",
    ],
)
def test_predicates_that_only_read_are_good(body: str) -> None:
    assert not _is_changing(f"def is_full(self, key): {body}\n")


@pytest.mark.parametrize(
    "body",
    [
        "self.count += 1",
        "self.a.b = 1",
        "self.a: int = 1",
        "self.a, self.b = 1, 2",
        "[self.a, *self.b] = key",
        "self.cells[key] = 1",
        "del self.cells[key]",
        "self.times.append(key)",
        "self.cells.move_to_end(key)",
        "self.cells.rotate()",
        "self.cells.difference_update(key)",
        "self._counter.inc()",
        "return self.bucket.try_acquire()",
        "return self._evict_oldest()",
        "key.pop()",
        "cells = self._cells; cells.append(key)",
        "cells = self._cells.get(key); cells.append(key)",
        "return any(each.pop() for each in self._cells.values())",
        "return next(self._numbers)",
        "setattr(self, 'a', 1)",
        "object.__setattr__(self, 'a', 1)",
        "heapq.heappop(self._heap)",
        "global COUNT; COUNT = 1",
        "COUNTS.append(key)",
        "cells = self.cells; cells += [1]",
        "key += [1]",
        "return self.cells.spend(1)",
        "self.tokens.refill()",
        "cells = self.cells or []; cells.append(1)",
        "cells = self.cells if key else []; cells.append(1)",
        "(self.cells or []).append(1)",
        "cells: list[int] = self.cells; cells.append(1)",
        "random.shuffle(self.cells)",
        "bisect.insort_right(self.cells, 1)",
        "operator.setitem(self.cells, 0, 1)",
        "list.append(self.cells, 1)",
    ],
)
def test_predicates_that_change_something_are_found(body: str) -> None:
    assert _is_changing(f"def is_full(self, key): {body}\n")


@pytest.mark.parametrize(
    "statement",
    [
        "for self.a in range(3): return True",
        "for each in self.cells: each.clear()",
        "for number, each in enumerate(list(self.cells)): each.clear()",
        "with key as self.a: return True",
    ],
)
def test_statements_that_change_something_are_found(statement: str) -> None:
    assert _is_changing(f"def is_full(self, key):\n    {statement}\n")


@pytest.mark.parametrize(
    ("call", "is_changing"), [("add()", False), ("fill(self.cells)", True), ("fill([])", False)]
)
def test_functions_inside_a_predicate_are_followed(call: str, is_changing: bool) -> None:
    text = f"""
def is_full(self):
    found = []

    def add():
        found.append(1)
        add()

    def fill(cells):
        cells.append(1)

    {call}
"""
    assert _is_changing(text) == is_changing


@pytest.mark.parametrize(
    "text",
    [
        "def outer(cells):\n    def is_full(): cells.append(1)\n",
        "if True:\n    def is_full(cells): cells.append(1)\n",
        "class A:\n    if True:\n        def is_full(self): self.count = 1\n",
        "class A:\n    @classmethod\n    def is_full(cls): cls.count = 1\n",
        "def is_full(*cells): cells[0].append(1)\n",
        "def is_full(**cells): cells['a'].append(1)\n",
        "def is_full(self): return all(each.pop() for each in self)\n",
        "class A:\n    is_full = lambda self: self.cells.append(1)\n",
        "is_full: Callable[[A], None] = lambda a: a.cells.append(1)\n",
    ],
)
def test_predicates_are_found_wherever_they_are_defined(text: str) -> None:
    assert _is_changing(text)


@pytest.mark.parametrize(
    ("call", "is_changing"),
    [
        ("self._read()", False),
        ("self._present()", True),
        ("self._known", True),
        ("_fill(self.cells)", True),
        ("_fill([])", False),
        ("self._pass_on([], self.cells)", True),
        ("self._pass_on(self.cells, [])", False),
        ("self._pass_on(other=self.cells, one=[])", True),
        ("self._pass_on(other=[], one=self.cells)", False),
        ("Tables._present(self)", True),
        ("Tables._grab(self)", True),
        ("Tables._grab([])", False),
        ("self._of_class(self.cells)", True),
        ("self._of_class([])", False),
        ("self._pass_rest(self.cells, [])", False),
        ("self._pass_rest([], self.cells)", True),
    ],
)
def test_helpers_of_a_predicate_are_followed(call: str, is_changing: bool) -> None:
    text = f"""
class Tables:
    def has_rules(self):
        return {call}

    def _read(self):
        return self.cells and self.has_rules()

    def _present(self):
        return self._keep()

    def _keep(self):
        self.cells[0] = 1

    @property
    def _known(self):
        self.cells.sort()

    @staticmethod
    def _grab(tables):
        tables.cells = []

    @classmethod
    def _of_class(cls, cells):
        cells.append(1)

    def _pass_rest(self, one, *rest):
        rest[0].append(1)

    def _pass_on(self, one, other):
        _fill(other)

def _fill(cells):
    cells.append(1)
"""
    assert _is_changing(text) == is_changing


@pytest.mark.parametrize(
    ("call", "is_changing"),
    [
        ("self._table()", True),
        ("self._table().get(1)", True),
        ("self._named", True),
        ("self._copy()", False),
        ("self._first(self.cells, [])", True),
        ("self._first([], self.cells)", False),
    ],
)
def test_parts_that_methods_return_are_followed(call: str, is_changing: bool) -> None:
    text = f"""
class Tables:
    def has_rules(self):
        cells = {call}
        cells.append(1)

    def _table(self):
        cells = self.cells
        return cells if cells else self._table()

    @property
    def _named(self):
        return self.cells

    def _copy(self):
        return list(self.cells)

    def _first(self, one, other):
        return one
"""
    assert _is_changing(text) == is_changing


_TRUST = """
class Guard:
    def trust_expired(self, now):
        return self._prune(now)

    def _prune(self, now):
        self.cells.clear()

    def get(self, key):
        self.reads += 1

class Owner:
    def expired(self, now):
        return self.guard.trust_expired(now)

    def seen(self, now):
        self.now = now

    def fill(self, cells):
        cells.append(1)

class Other:
    def seen(self, now):
        return self.now < now
"""


def test_methods_that_change_their_object_are_named() -> None:
    """Not `get`, which dicts have, nor `seen`, as that of `Other` only reads."""
    assert predicates.mutating_methods([ast.parse(_TRUST)]) == {"expired", "trust_expired", "_prune"}


@pytest.mark.parametrize(
    ("body", "is_changing"),
    [
        ("return bool(self._guard.trust_expired(now))", True),
        ("return self._owner.expired(now)", True),
        ("return self._owner.seen(now) or self._guard.get(now)", False),
        ("return guards.trust_expired(now)", False),
        ("guard = Guard(); return guard.trust_expired(now)", False),
    ],
)
def test_methods_of_other_classes_are_known(body: str, is_changing: bool) -> None:
    tree = ast.parse(f"import guards\ndef has_expired(self, now): {body}\n")
    mutating = predicates.mutating_methods([ast.parse(_TRUST)])
    assert bool(list(predicates.changing(tree, mutating))) == is_changing
