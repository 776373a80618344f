# SPDX-License-Identifier: Apache-2.0
"""Which public functions, classes and methods of the product have no caller in the product.

What is specified, tested and never called is a promise that nobody keeps. Tests, fakes and the demo are no
callers. A function or class of a module counts as used where its name is read in the module itself, beyond
its own body, or where another module of the product reads what it imported of it. Of methods and nested
names only the name is compared, as types are not known here. A method that overrides one of a class that is
not the product's, as `asyncio.Protocol.connection_made`, is called by that class.
"""

import ast
import importlib
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.packages import PACKAGES, ROOT

# Neither the fakes nor the demo: what they alone call is for tests.
_PRODUCT = tuple(each for each in PACKAGES if each not in ("devkit", "vcnode_demo"))
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(slots=True)
class _Uses:
    """Of one module: what it reads of others' modules, of its own, names of attributes, and the
    modules that it hands on, whose callers are not seen."""

    of_modules: set[tuple[str, str]] = field(default_factory=set)
    passed_modules: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)


def unwired(trees: Mapping[str, tuple[Path, ast.Module]] | None = None) -> list[str]:
    """`path:line name` of each public definition without a caller, in order.

    `trees` has by its dotted name each module's path and source; those of the product without it.
    """
    trees = dict(_product()) if trees is None else trees
    uses = {module: _uses(module, tree, trees) for module, (_, tree) in trees.items()}
    read = {each for found in uses.values() for each in found.of_modules} | set(_programs())
    passed = {each for found in uses.values() for each in found.passed_modules}
    attributes = {each for found in uses.values() for each in found.attributes}
    names = attributes | {each for found in uses.values() for each in found.own}
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {'.'.join((*(each.name for each in within), node.name))}"
        for module, (path, tree) in trees.items()
        for within, node in _public(tree)
        if not (
            (module, node.name) in read
            or node.name in uses[module].own
            or (module in passed and node.name in attributes)
            if not within
            else node.name in names or _is_called_from_outside(module, within, node.name)
        )
    ]


def _product() -> Iterator[tuple[str, tuple[Path, ast.Module]]]:
    for package in _PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield module, (path, ast.parse(path.read_text(encoding="utf-8")))


def _public(
    node: ast.Module | _Definition, within: tuple[_Definition, ...] = ()
) -> Iterator[tuple[tuple[_Definition, ...], _Definition]]:
    """Definitions at the top of a module, and in its classes."""
    for each in node.body:
        if isinstance(each, _DEFINITIONS):
            if not each.name.startswith("_"):
                yield within, each
            if isinstance(each, ast.ClassDef):
                yield from _public(each, (*within, each))


def _uses(module: str, tree: ast.Module, trees: Mapping[str, object]) -> _Uses:
    found = _Uses()
    # Local names: of a module of the product, or of something in one.
    modules: dict[str, str] = {}
    members: dict[str, tuple[str, str]] = {}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    modules[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                local, whole = alias.asname or alias.name, f"{node.module}.{alias.name}"
                if whole in trees:
                    modules[local] = whole
                else:
                    members[local] = (node.module, alias.name)
    for node in nodes:
        if isinstance(node, ast.Attribute):
            found.attributes.add(node.attr)
            if (of := _dotted(node.value)) is not None:
                found.of_modules.add((modules.get(of, of), node.attr))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in members:
            found.of_modules.add(members[node.id])
    bases = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    found.passed_modules = {
        modules[node.id]
        for node in nodes
        if isinstance(node, ast.Name) and node.id in modules and id(node) not in bases
    }
    counts: dict[str, int] = defaultdict(int)
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            counts[node.id] += 1
    for annotation in _annotations(nodes):
        for node in ast.walk(annotation):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for name in _IDENTIFIER.findall(node.value):
                    counts[name] += 1
    for _, definition in _public(tree):
        if not counts[definition.name]:
            continue
        inside = sum(
            isinstance(node, ast.Name) and node.id == definition.name for node in ast.walk(definition)
        )
        if counts[definition.name] > inside:
            found.own.add(definition.name)
    return found


def _annotations(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Some are written as text: a type that stands further down."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)) is not None:
        return f"{before}.{node.attr}"
    return None


def _is_called_from_outside(module: str, within: tuple[_Definition, ...], name: str) -> bool:
    of: object = importlib.import_module(module)
    for each in within:
        of = getattr(of, each.name)
    bases = of.__mro__[1:] if isinstance(of, type) else ()
    return any(hasattr(each, name) and each.__module__.partition(".")[0] not in _PRODUCT for each in bases)


def _programs() -> Iterator[tuple[str, str]]:
    """What the packages' programs start with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for target in project["project"]["scripts"].values():
        module, _, name = target.partition(":")
        yield module, name
