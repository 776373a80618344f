# SPDX-License-Identifier: Apache-2.0
"""Names of our modules, classes and functions in prose, between backticks, that no longer exist.

A whole name (package.module.Name) counts everywhere, a short one (module.Class) in Python files only: in
documents it may be a key of a configuration, a field of an object or another project's.
"""

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.packages import PACKAGES, ROOT

_OURS = frozenset({*PACKAGES, "devkit", "tests", "vcnode_demo"})
_NAME = re.compile(r"`(?P<name>[a-z_]\w*(?:\.\w+)+)(?:\(\))?`")
_CLASS = re.compile(r"[A-Z]\w*[a-z]\w*")
_PROTO_PACKAGES = ("vcnode.bridge.v1", "vcnode.guest.v1")
_FILE_SUFFIXES = {"conf", "json", "md", "proto", "py", "service", "sock", "toml", "txt", "yaml"}


def broken_in(text: str, *, is_python: bool) -> Iterator[str]:
    """Those of one text."""
    for found in _NAME.finditer(text):
        name = found["name"]
        first, *_, last = name.split(".")
        if last in _FILE_SUFFIXES or name.startswith(_PROTO_PACKAGES):
            continue
        if first in _OURS:
            if not _exists(name):
                yield name
        elif is_python and _CLASS.fullmatch(last) and not _is_class(name):
            yield name


def _exists(name: str) -> bool:
    """Whether it is a package, a module, or stands in one. An attribute of a class is not checked."""
    path, rest = ROOT, name.split(".")
    while rest and (path / rest[0]).is_dir():
        path /= rest.pop(0)
    if not rest:
        return True
    module = path / f"{rest[0]}.py"
    if module.is_file():
        return len(rest) == 1 or rest[1] in _names_in(module)
    return rest[0] in _names_in(path / "__init__.py")


def _is_class(name: str) -> bool:
    """Whether a module of ours with this ending has the class, or the name belongs to another project."""
    module, _, class_name = name.rpartition(".")
    parts = module.split(".")
    if any(
        path.with_suffix("").parts[-len(parts) :] == tuple(parts) and class_name in _names_in(path)
        for path in modules()
    ):
        return True
    return parts[0] in sys.stdlib_module_names or importlib.util.find_spec(parts[0]) is not None


@cache
def modules() -> list[Path]:
    """All Python files of our packages, tests and fakes."""
    return [path for package in sorted(_OURS) for path in (ROOT / package).rglob("*.py")]


@cache
def _names_in(module: Path) -> frozenset[str]:
    """The names that a module defines or imports at its top level; empty if the file is missing."""
    names: set[str] = set()
    body = ast.parse(module.read_text(encoding="utf-8")).body if module.is_file() else []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        else:
            names.update(
                target.id
                for target in ast.walk(node)
                if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
            )
    return frozenset(names)
