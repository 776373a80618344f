# SPDX-License-Identifier: Apache-2.0
"""Paths, names of code and targets of make that do not exist.

They stand between backticks; fenced blocks are read for paths, imports and targets. A walk-through is checked
for all of them, other texts for paths and names of tests. A path with a slash counts from the repository's
root, in other texts also from their folder; the name of a Python file alone is that of any.
What the reader is to write stands in the text, invisible when rendered: `<!-- new: PATH NAME ... -->`.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Set
from functools import cache
from itertools import chain
from pathlib import Path

from tests.dotted_names import modules
from tests.packages import ROOT

_NEW = re.compile(r"<!-- new: (?P<names>[^>]*) -->")
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
# `path`, `path:12` and `path::test`, and what stands in fenced blocks.
_PATH = re.compile(
    r"`(?P<path>[\w.-][\w./-]*(?:/[\w-]*|\.[a-z]+))(?:::(?P<test>[\w:]+)(?:\[[^`]*\])?|:[0-9-]+)?`"
)
_PLAIN_PATH = re.compile(r"(?<![\w./-])(?P<path>[\w-]+/[\w./-]*[\w/])(?:::(?P<test>[\w:]+))?")
_IMPORT = re.compile(r"^ *from (?P<module>[\w.]+) import (?P<names>[\w, ]+)$", re.MULTILINE)
_MAKE = re.compile(r"`make (?P<target>\w[\w-]*)")
_PLAIN_MAKE = re.compile(r"^ *(?:\$ )?make (?P<target>\w[\w-]*)", re.MULTILINE)
_TARGET = re.compile(r"^(?P<target>\w[\w-]*):(?!=)", re.MULTILINE)
_NAME = re.compile(r"`(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?P<call>\(\))?`")
_SUFFIXES = (".json", ".md", ".proto", ".py", ".sh", ".toml", ".txt", ".yaml")
# The name of a file alone may be one that operators write, as `tenants.yaml`.
_OWN_SUFFIXES = (".md", ".proto", ".py", ".sh")
# `P/M.py` stands for any, and `...` for the rest.
_PLACEHOLDER = re.compile(r"(?:^|[/_])[A-Z]+(?:[/_].*)?\.py$|\.\.\.")
_TEST = re.compile(r"`(?P<name>test_\w+)`")
_TEST_DEFINED = re.compile(r"^ *(?:async )?def (?P<name>test_\w+)", re.MULTILINE)
_CAMEL_CASE = re.compile(r"[A-Z][a-z]+[A-Z]")
_IN_FILE = re.compile(
    r"`(?P<name>[A-Za-z_][\w.]*)(?:\(\))?` (?:in |of |\()`(?P<file>[\w./-]+\.py)`"
    r"|`(?P<first_file>[\w./-]+\.py)`, `(?P<later_name>[A-Za-z_][\w.]*)(?:\(\))?`"
)
# It names what does not exist.
_OWN_TEST = "test_links.py"


def broken_in(text: str) -> Iterator[str]:
    """Those of one text: the path, the name, or `name in file`."""
    new = {name for found in _NEW.finditer(text) for name in found["names"].split()}
    yield from _broken_in_fences("\n".join(_FENCE.findall(text)), new)
    text = " ".join(_FENCE.sub("", text).split())
    yield from _broken_targets(_MAKE.finditer(text))
    for found in _PATH.finditer(text):
        yield from _broken_path(found, new)
    for found in _NAME.finditer(text):
        name = found["name"]
        is_code = found["call"] or (
            ("_" in name or _CAMEL_CASE.search(name)) and not name.endswith(_SUFFIXES)
        )
        if is_code and name not in new and not _words() >= set(name.split(".")):
            yield name
    for found in _IN_FILE.finditer(text):
        name, file = found["name"] or found["later_name"], found["file"] or found["first_file"]
        if not {name, file} & new and not _has(file, set(name.split("."))):
            yield f"{name} in {file}"


def broken_paths(text: str, folder: Path) -> Iterator[str]:
    """Those of a text that stands in `folder` and is no walk-through."""
    fences, text = "\n".join(_FENCE.findall(text)), " ".join(_FENCE.sub("", text).split())
    for found in chain(_PATH.finditer(text), _PLAIN_PATH.finditer(fences)):
        path, start = found["path"], found["path"].split("/")[0]
        if "/" not in path:
            is_ours, exists = path.endswith(_OWN_SUFFIXES), path in _names_of_files()
        else:
            is_quoted = found[0].startswith("`")
            is_ours = (is_quoted and path.endswith(_SUFFIXES)) or start in _folders()
            exists = (folder / path).exists()
        if is_ours and not exists and not _PLACEHOLDER.search(path):
            yield from _broken_path(found, ())


def broken_tests(text: str) -> Iterator[str]:
    """The names of tests that no test and no file of tests has."""
    yield from (found["name"] for found in _TEST.finditer(text) if found["name"] not in _tests())


def _broken_in_fences(text: str, new: Collection[str]) -> Iterator[str]:
    yield from _broken_targets(_PLAIN_MAKE.finditer(text))
    for found in _PLAIN_PATH.finditer(text):
        if found["path"].split("/")[0] in _folders():
            yield from _broken_path(found, new)
    for found in _IMPORT.finditer(text):
        path = f"{found['module'].replace('.', '/')}.py"
        names = set(re.findall(r"\w+", found["names"]))
        if path.split("/")[0] in _folders() and path not in new and not _has(path, names.difference(new)):
            yield found[0].strip()


def _broken_targets(cited: Iterable[re.Match[str]]) -> Iterator[str]:
    targets = {found["target"] for found in _TARGET.finditer((ROOT / "Makefile").read_text())}
    yield from (f"make {found['target']}" for found in cited if found["target"] not in targets)


def _broken_path(found: re.Match[str], new: Collection[str]) -> Iterator[str]:
    path, test = found["path"], found["test"]
    is_ours = path.endswith(("/", *_SUFFIXES)) or ("/" in path and path.split("/")[0] in _folders())
    if not is_ours or path.startswith("../") or path in new:
        return
    if not _exists(path):
        yield path
    elif test and test not in new and not _has(path, set(test.split("::"))):
        yield f"{path}::{test}"


def _exists(path: str) -> bool:
    return (ROOT / path).exists() or ("/" not in path and any(True for _ in _modules_named(path)))


def _has(file: str, names: Set[str]) -> bool:
    """Whether such a module has all these names."""
    return any(names <= _words_in(path) for path in _modules_named(file))


@cache
def _names_of_files() -> frozenset[str]:
    found = chain(ROOT.glob("*"), *((ROOT / folder).rglob("*") for folder in _folders()))
    return frozenset(path.name for path in found)


@cache
def _tests() -> frozenset[str]:
    """The names of tests, and of their files."""
    texts = (path.read_text(encoding="utf-8") for path in modules())
    names = {found["name"] for text in texts for found in _TEST_DEFINED.finditer(text)}
    return frozenset(names | {path.stem for path in modules()})


@cache
def _folders() -> frozenset[str]:
    """Those at the root that are ours, and are not made."""
    return frozenset(
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith(".") and path.name not in ("build", "dist")
    )


def _modules_named(file: str) -> Iterator[Path]:
    """A path from the root is that module; a name alone is that of any."""
    if "/" in file:
        yield from (path for path in [ROOT / file] if path.is_file())
    else:
        yield from (path for path in modules() if path.name == file)


@cache
def _words() -> frozenset[str]:
    return frozenset().union(*(_words_in(path) for path in modules() if path.name != _OWN_TEST))


@cache
def _words_in(module: Path) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", module.read_text(encoding="utf-8")))
