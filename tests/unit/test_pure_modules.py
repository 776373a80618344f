# SPDX-License-Identifier: Apache-2.0
"""Modules that decide do not act: what import-linter's contract "what decides does not act" cannot see."""

from pathlib import Path

import pytest

from tests.layers import acts, imports_of, modules_of, pure_modules, says_pure
from tests.packages import PACKAGES, ROOT

MODULES = {name: path for package in PACKAGES for name, path in modules_of(package).items()}
PURE = pure_modules(MODULES)
# Modules that act, and also hold what decides needs: who imports them, and what for.
ALSO_IMPORTED = {
    "daemonkit.config.binding": ("daemonkit.kube.relist_guard",),  # `setting`, the field of a configuration
    "daemonkit.tls.contexts": (
        "vcnode.core.certificates",
        "vnagent.tenants.virtualcluster",
    ),  # OpenSSL's parser
    "vcnode.terminal": ("vcnode.core",),  # `ToolError`, and texts made printable
}
# A lock around the recursion limit, which is the process's, and a value for each thread of handshakes.
OF_THREADS = ("daemonkit.kube.deep_json", "vnagent.core.client_chain")


def test_modules_that_decide_import_and_use_nothing_that_acts() -> None:
    assert len(PURE) > 150
    found = [
        each
        for name in PURE
        for each in acts(MODULES[name].relative_to(ROOT), MODULES[name].read_text())
        if not (name in OF_THREADS and each.endswith(" threading"))
    ]
    assert found == []


def test_modules_that_decide_import_such_modules_only() -> None:
    found = [
        f"{name} imports {other}"
        for name in PURE
        for other in imports_of(name, MODULES[name], MODULES)
        if other not in PURE and not name.startswith(ALSO_IMPORTED.get(other, ()))
    ]
    assert found == []


def test_modules_that_call_themselves_pure_are_such_modules() -> None:
    assert [name for name, path in MODULES.items() if name not in PURE and says_pure(path.read_text())] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'Bounds on text. Pure.'", True),
        ("'A purely functional part.'", True),
        ("'What it decides is pure: `now` comes in.'", True),
        ("'It has a purpose.'", False),
        ("x = 'pure'", False),
        ("", False),
    ],
)
def test_the_word_pure_is_found_in_docstrings(text: str, expected: bool) -> None:
    assert says_pure(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("open('x')", ["a.py:1 open"]),
        ("read = open", ["a.py:1 open"]),
        ("path.read_text()", ["a.py:1 path.read_text"]),
        ("path.rename('x')", ["a.py:1 path.rename"]),
        ("clock = dt.datetime.now", ["a.py:1 dt.datetime.now"]),
        ("list(path.iterdir())", ["a.py:1 path.iterdir"]),
        ("sys.stderr.write('x')", ["a.py:1 sys.stderr"]),
        ("sys.exit(1)", ["a.py:1 sys.exit"]),
        ("import sys as system", ["a.py:1 sys"]),
        ("from sys import intern, stderr", ["a.py:1 sys.stderr"]),
        ("import threading", ["a.py:1 threading"]),
        ("from threading import Thread", ["a.py:1 threading.Thread"]),
        ("from urllib.request import urlopen", ["a.py:1 urllib.request.urlopen"]),
        ("from urllib import request", ["a.py:1 urllib.request"]),
        ("from http import HTTPStatus, client", ["a.py:1 http.client"]),
        ("import http.client", ["a.py:1 http.client"]),
        ("import io, mmap, sqlite3", ["a.py:1 io", "a.py:1 mmap", "a.py:1 sqlite3"]),
        ("from pathlib import Path", ["a.py:1 pathlib.Path"]),
        ("import re; from collections.abc import Set; from tenancy.keys import HOLD; from . import x", []),
        ("async def f():\n    await g()", ["a.py:1 async f"]),
        ("class A:\n    async def f(self):\n        return 1", ["a.py:2 async f"]),
        ("def f(a): return (b async for b in a)", ["a.py:1 async for"]),
        ("class Port(Protocol):\n    async def f(self):\n        'Waits.'\n    async def g(self): ...", []),
        ("(path.name, now_s, self.is_open, sys.intern('x'))", []),
    ],
)
def test_acts_are_found(text: str, expected: list[str]) -> None:
    assert list(acts(Path("a.py"), text)) == expected
