# SPDX-License-Identifier: Apache-2.0
"""`vcnode demo` becomes the demo of its clone; an installed tree says where it runs."""

import sys
import tomllib
from pathlib import Path

import pytest
from setuptools import find_packages

from tests.packages import PACKAGES, ROOT
from vcnode import demo
from vcnode.__main__ import main, parser
from vcnode.terminal import ToolError


def test_demo_of_a_clone_is_a_program_of_its_own() -> None:
    assert demo.demo_command(ROOT, ["--keep"]) == [sys.executable, "-u", "-m", "vcnode_demo", "--keep"]


def test_packages_have_neither_the_demo_nor_its_fakes() -> None:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    shipped = {name.partition(".")[0] for name in find_packages(str(ROOT), include=found["include"])}
    assert shipped == set(PACKAGES) - {"vcnode_demo", "devkit"}


def test_without_a_demo_the_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="runs from a clone only"):
        demo.demo_command(tmp_path, [])


def test_an_installed_tree_says_where_the_demo_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "demo" in parser().format_help()
    monkeypatch.setattr(demo, "_CLONE", tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--keep"])
    assert caught.value.code == 2
    assert "vcnode: error: vcnode demo runs from a clone only: " in capsys.readouterr().err
    assert "demo" not in parser().format_help()
