# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.rings` with real pytest runs of small test files."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases.daemon import ROOT

# Fails when it runs first, and passes when it runs again.
FLAKY = """
from pathlib import Path
def test_flaky():
    marker = Path(__file__).with_name("marker")
    is_second = marker.exists()
    marker.touch()
    print("second run" if is_second else "first run")
    assert is_second
def test_good():
    pass
"""
FAILED = "def test_bad():\n    assert 1 == 2\n"
SKIPPED = 'import pytest\ndef test_here():\n    pytest.skip("needs a moon")\n'
SEEDED = """
def test_seed(pytestconfig):
    raise AssertionError(f"seed {pytestconfig.getoption('--seed')}")
"""
ERROR = "import absent_module\n"
CONFTEST = """
from tests.rings.plugin import pytest_addoption as of_rings, pytest_configure
def pytest_addoption(parser):
    of_rings(parser)
    parser.addoption("--seed", type=int)
"""


def _rings(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.rings", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def _ring(directory: Path, text: str, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Run one file as a ring; its exit code, what it printed, and its figures."""
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_it.py").write_text(text)
    (directory / "pytest.ini").write_text("[pytest]\n")
    done = _rings(directory, "pytest", "small", *arguments, "--", "test_it.py", "-p", "no:cacheprovider")
    found: dict[str, Any] = json.loads((directory / "build" / "rings" / "small.json").read_text())
    return done.returncode, done.stdout, found


def _report(directory: Path) -> tuple[int, list[str]]:
    done = _rings(directory, "report", "small")
    return done.returncode, done.stdout.splitlines()


def test_a_flaky_test_prints_both_logs_and_passes_the_ring(tmp_path: Path) -> None:
    code, _, found = _ring(tmp_path, FLAKY)
    assert (code, found["passed"], found["failed"]) == (0, 2, [])
    report_code, lines = _report(tmp_path)
    assert (report_code, lines[-1]) == (0, "2 passed, 0 failed")
    text = "\n".join(lines)
    assert "first run" in text.partition("second log")[0]
    assert "second run" in text.partition("second log")[2]


def test_a_test_that_fails_twice_fails(tmp_path: Path) -> None:
    code, printed, found = _ring(tmp_path, FAILED)
    assert (code, len(found["failed"]), found["flaky"]) == (1, 1, [])
    assert printed.count("1 failed in") == 2
    assert _report(tmp_path)[1][-1] == "0 passed, 1 failed"


def test_a_skip_that_is_not_listed_fails(tmp_path: Path) -> None:
    code, printed, found = _ring(tmp_path, SKIPPED)
    assert (code, len(found["failed"])) == (1, 1)
    assert "NOT RUN, and it must: test_it.py::test_here: needs a moon" in printed


def test_collection_error_fails(tmp_path: Path) -> None:
    code, _, found = _ring(tmp_path, ERROR)
    assert (code, found["failed"]) == (1, ["test_it.py"])


def test_the_second_run_gets_the_seed_of_the_first(tmp_path: Path) -> None:
    code, printed, _ = _ring(tmp_path, SEEDED, "--drawn-seed=--seed")
    seeds = re.findall(r"^E +AssertionError: seed (\d+)$", printed, re.MULTILINE)
    assert code == 1
    assert len(seeds) == 2
    assert seeds[0] == seeds[1]
    assert f"small: --seed {seeds[0]}: " in printed


def test_a_command_fails_as_it_does_and_its_count_is_kept(tmp_path: Path) -> None:
    done = _rings(tmp_path, "command", "small", "--", "sh", "-c", "echo 3 passed, 1 failed; exit 1")
    assert done.returncode == 1
    code, lines = _report(tmp_path)
    assert (code, lines[-1]) == (1, "3 passed, 1 failed")


def test_a_skip_is_printed_where_nothing_is_required(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(SKIPPED)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.OK
    assert "LEFT OUT: test_it.py::test_here: needs a moon" in done.stdout
