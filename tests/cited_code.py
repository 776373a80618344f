# SPDX-License-Identifier: Apache-2.0
"""Paths and names of code, between backticks in a walk-through, that do not exist.

A path with a slash counts from the repository's root; the name of a Python file alone is that of any.
What the reader is to write stands in the text, invisible when rendered: `<!-- new: PATH NAME ... -->`.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.dotted_names import modules
from tests.packages import ROOT

_NEW = re.compile(r"<!-- new: (?P<names>[^>]*) -->")
_PATH = re.compile(r"`(?P<path>[\w.-][\w./-]*(?:/|\.[a-z]+))`")
_NAME = re.compile(r"`(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?P<call>\(\))?`")
_SUFFIXES = (".json", ".md", ".proto", ".py", ".sh", ".toml", ".txt", ".yaml")
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
    text = " ".join(text.split())
    for found in _PATH.finditer(text):
        path = found["path"]
        is_ours = path.endswith(("/", *_SUFFIXES)) and not path.startswith("../")
        if is_ours and path not in new and not _exists(path):
            yield path
    for found in _NAME.finditer(text):
        name = found["name"]
        is_code = found["call"] or (
            ("_" in name or _CAMEL_CASE.search(name)) and not name.endswith(_SUFFIXES)
        )
        if is_code and name not in new and not _words() >= set(name.split(".")):
            yield name
    for found in _IN_FILE.finditer(text):
        name, file = found["name"] or found["later_name"], found["file"] or found["first_file"]
        if not {name, file} & new and not any(
            set(name.split(".")) <= _words_in(path) for path in _modules_named(file)
        ):
            yield f"{name} in {file}"


def _exists(path: str) -> bool:
    return (ROOT / path).exists() or ("/" not in path and any(True for _ in _modules_named(path)))


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
