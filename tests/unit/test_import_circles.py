# SPDX-License-Identifier: Apache-2.0
"""No module of a package imports itself by way of others, imports for the type checker included."""

from pathlib import Path

import pytest

from tests.layers import computed_imports, imports_of, late_callbacks, modules_of
from tests.packages import PACKAGES, ROOT


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that reach each other (Tarjan), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1 or module in graph[module]:
                found.append(sorted(group))

    for module in graph:
        if module not in index:
            visit(module)
    return found


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}}) == [["b", "c"], ["d"]]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    known = modules_of(package)
    assert len(known) > 1
    graph = {name: set(imports_of(name, path, known)) for name, path in known.items()}
    assert circles(graph) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_computes_what_it_imports(package: str) -> None:
    """Such an import would be hidden from this test and from import-linter."""
    found = [
        each
        for path in modules_of(package).values()
        for each in computed_imports(path.relative_to(ROOT), path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize("package", [package for package in PACKAGES if package != "devkit"])
def test_callbacks_are_passed_to_constructors(package: str) -> None:
    found = [
        each
        for path in modules_of(package).values()
        for each in late_callbacks(path.relative_to(ROOT), path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("b/c.py", "from a.b import d", ["a.b.d"]),
        ("b/c.py", "def late():\n    from . import d", ["a.b.d"]),
        ("b/c.py", "from .d import value", ["a.b.d"]),
        ("b/c.py", "from .. import e", ["a.e"]),
        ("b/__init__.py", "from . import d", ["a.b.d"]),
        ("b/__init__.py", "from ..e import value", ["a.e"]),
        ("b/c.py", "import a.e, os", ["a.e"]),
    ],
)
def test_imports_are_found(tmp_path: Path, file: str, text: str, expected: list[str]) -> None:
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(text)
    name = "a.b" if file.endswith("__init__.py") else "a.b.c"
    assert list(imports_of(name, path, {"a.b.d", "a.e"})) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import importlib", ["a.py:1 importlib"]),
        ("import importlib.util", ["a.py:1 importlib.util"]),
        ("from importlib import import_module as x", ["a.py:1 importlib.import_module"]),
        ("from importlib import util", ["a.py:1 importlib.util"]),
        ("import runpy", ["a.py:1 runpy"]),
        ("__import__('x')", ["a.py:1 __import__"]),
        ("from importlib import metadata", []),
    ],
)
def test_computed_imports_are_found(text: str, expected: list[str]) -> None:
    assert list(computed_imports(Path("a.py"), text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = A(b)\na.on_done = b.done", ["a.py:2 a.on_done"]),
        ("self.a = A()\nself.a.on_done = self.done", ["a.py:2 self.a.on_done"]),
        ("make().end_callback = f", ["a.py:1 make().end_callback"]),
        ("self.on_done = on_done\nself._end_callback: F = f", []),
        ("a.on = a.one_second = 1; a.on_done(); f(a.on_done)", []),
    ],
)
def test_late_callbacks_are_found(text: str, expected: list[str]) -> None:
    assert list(late_callbacks(Path("a.py"), text)) == expected
