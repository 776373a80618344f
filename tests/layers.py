# SPDX-License-Identifier: Apache-2.0
"""Who imports whom, what hides an import circle, and acts of modules that should only decide."""

import ast
import re
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.packages import PACKAGES, ROOT

# A contract that forbids this one is about modules that decide and do not act.
_MARK = "asyncio"
_CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

# Modules that import others by a name. `importlib.metadata` and `importlib.resources` read files only.
_LOADERS = frozenset(
    {"importlib", "importlib.machinery", "importlib.util", "imp", "pkgutil", "runpy", "zipimport"}
)
_LOADING_NAMES = frozenset({"__import__", "import_module"})

# What modules that decide may import of others' modules.
_DECIDING = frozenset(
    re.findall(
        r"\S+",
        """
        base64 binascii bisect calendar collections collections.abc contextlib copy dataclasses datetime enum
        fnmatch fractions functools hashlib heapq ipaddress itertools json math operator posixpath re string
        struct types typing urllib.parse weakref zlib
        cryptography cryptography.exceptions cryptography.hazmat.primitives.serialization
        cryptography.x509.oid dns.exception dns.flags dns.message dns.rcode msgspec msgspec.structs yaml
        """,
    )
)
# Of these only such names: the others act.
_DECIDING_NAMES = {
    "http": {"HTTPStatus"},
    "pathlib": {"PurePath"},
    "sys": {"getrecursionlimit", "intern", "setrecursionlimit"},
    # Rules of time zones: data of the system, as `base64` is, and read once.
    "zoneinfo": {"ZoneInfo", "ZoneInfoNotFoundError"},
}

_ACTING_FUNCTIONS = frozenset({"breakpoint", "eval", "exec", "exit", "input", "open", "print", "quit"})
# Of paths and the clock; a pure module has no field or method of these names.
_ACTING_ATTRIBUTE = re.compile(
    "chmod|cwd|exists|expanduser|glob|hardlink_to|home|is_dir|is_file|is_socket|is_symlink|iterdir"
    "|lstat|mkdir|now|open|read_bytes|read_text|readlink|rename|rglob|rmdir|samefile|stat|symlink_to|today"
    "|touch|unlink|utcnow|write_bytes|write_text"
)


_CALLBACK = re.compile(r"_*on_\w+|\w*_(?:callback|handler|hook)")


def modules_of(package: str) -> dict[str, Path]:
    """All modules of a package, by their dotted names."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, path: Path, known: Collection[str]) -> Iterator[str]:
    """The modules of `known` that a module imports: at its head, in functions, for the type checker."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            package = _from(node, name, is_package=path.name == "__init__.py")
            for alias in node.names:
                submodule = f"{package}.{alias.name}"
                if submodule in known:
                    yield submodule
                elif package in known:
                    yield package


def _from(node: ast.ImportFrom, name: str, *, is_package: bool) -> str:
    """The absolute name of `from here import ...`, which may be `.`, `..` or `.here`."""
    if node.level == 0:
        return node.module or ""
    parts = name.split(".")
    parents = parts[: len(parts) - node.level + is_package]
    return ".".join([*parents, *([node.module] if node.module else [])])


def pure_modules(modules: Collection[str]) -> list[str]:
    """Those of `modules` that the contracts list, by name or by package."""
    listed = {
        name
        for contract in _CONTRACTS
        if _MARK in contract.get("forbidden_modules", ())
        for name in contract["source_modules"]
    }
    return [
        module
        for module in modules
        if any(module == name or module.startswith(f"{name}.") for name in listed)
    ]


def says_pure(text: str) -> bool:
    """Whether the docstring of a module has the word."""
    return re.search(r"\bpure(?:ly)?\b", ast.get_docstring(ast.parse(text)) or "", re.IGNORECASE) is not None


def acts(path: Path, text: str) -> Iterator[str]:
    """`file:line name` of each import of what may act, each use of a file or the clock, and each coroutine.

    But for those without a body: a port such as `kata_bridge.channels.port` declares them and runs nothing.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.AsyncFunctionDef) and not all(map(_is_text, node.body)):
            yield f"{path}:{node.lineno} async {node.name}"
        elif isinstance(node, ast.comprehension) and node.is_async:
            yield f"{path}:{node.iter.lineno} async for"
        elif isinstance(node, ast.Name) and node.id in _ACTING_FUNCTIONS:
            yield f"{path}:{node.lineno} {node.id}"
        elif isinstance(node, ast.Attribute) and _is_acting(node):
            yield f"{path}:{node.lineno} {ast.unparse(node)}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                is_known = alias.name in _DECIDING or (alias.name in _DECIDING_NAMES and not alias.asname)
                if not is_known and not _is_ours(alias.name):
                    yield f"{path}:{node.lineno} {alias.name}"
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module not in _DECIDING:
            names = _DECIDING_NAMES.get(node.module or "", ())
            for alias in node.names:
                if alias.name not in names and not _is_ours(node.module or ""):
                    yield f"{path}:{node.lineno} {node.module}.{alias.name}"


def _is_text(node: ast.stmt) -> bool:
    """A docstring, or `...`."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_acting(node: ast.Attribute) -> bool:
    if isinstance(node.value, ast.Name) and node.value.id in _DECIDING_NAMES:
        return node.attr not in _DECIDING_NAMES[node.value.id]
    return _ACTING_ATTRIBUTE.fullmatch(node.attr) is not None


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def computed_imports(path: Path, text: str) -> Iterator[str]:
    """`file:line name` of each way to import a module whose name is a string."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in _imported(node):
                if name in _LOADERS or name.rpartition(".")[2] in _LOADING_NAMES:
                    yield f"{path}:{node.lineno} {name}"
        elif isinstance(node, ast.Name) and node.id in _LOADING_NAMES:
            yield f"{path}:{node.lineno} {node.id}"


def late_callbacks(path: Path, text: str) -> Iterator[str]:
    """`file:line name` of each callback that a module sets on an object other than `self`.

    Two modules that need each other call each other then, and no import shows it.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = ast.unparse(node)
            if _CALLBACK.fullmatch(node.attr) and name != f"self.{node.attr}":
                yield f"{path}:{node.lineno} {name}"


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    return [f"{start}{alias.name}" for alias in node.names]
