# SPDX-License-Identifier: Apache-2.0
"""Builds the tree that packages install: `python packaging/tree.py DIRECTORY`, or checks with `--check`
whether it can (exit code 0; 1 prints what is missing).

The tree has our packages except the demo and the fakes, with the byte path compiled (setup.py lists its
modules). It has their dependencies, byte code, and a launcher for each daemon in `bin/`. A launcher runs the
interpreter that built the tree, isolated (`python -ISE`): without user site and environment, with the
standard library and this directory alone. `-X no_debug_ranges` leaves out the columns of each instruction,
which only underline the lines of a trace: 0.2 MB of vn-agent. A launcher finds the tree from its own place,
so a tree may be copied. The build needs a C compiler and Python's headers; setuptools and mypy come from the
interpreter that runs this. Dependencies are the wheels of packaging/requirements, which names their hashes.

One commit makes the same bytes: the seed of Python's hashes is fixed, byte code carries the path of an
installed tree (`INSTALLED`) and no time, libraries are stripped, and what pip notes about an installation is
removed. Exit code 1: the build failed.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
# Where packages install the tree; tracebacks have this path.
INSTALLED = "/usr/lib/vcnode"
# In the wheels, and of no use to a program that runs: types, sources of compiled modules, tests.
_LEFT_OUT = ("*.pyi", "*.pyx", "*.pxd", "*.c", "*.h", "*.hash", "tests")
# Names of files that differ from one installation to the next.
_NOTES_OF_PIP = ("direct_url.json", "INSTALLER", "REQUESTED")
# What is imported lives as long as the program. Collections of garbage take 15 % of the imports' time; those
# that free something stay with these thresholds.
_LAUNCHER = """\
#!{python} -ISEXno_debug_ranges
import gc
import os
import sys

gc.set_threshold(5_000, 100, 100)
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from {module} import {function}

gc.freeze()
gc.set_threshold(700, 10, 10)
sys.exit({function}())
"""


def main() -> int:
    if sys.argv[1] == "--check":
        missing = _missing()
        sys.stderr.write(f"tree: {missing} is missing\n" if missing else "")
        return 1 if missing else 0
    tree = Path(sys.argv[1]).resolve()
    shutil.rmtree(tree, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory(prefix="vcnode-tree-") as scratch:
            wheel = _build_wheel(Path(scratch))
            _install(tree, wheel)
        _reduce(tree)
        _write_launchers(tree)
        _compile(tree)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"tree: {' '.join(error.cmd)} ended with {error.returncode}\n")
        return 1
    return 0


def _install(tree: Path, wheel: Path) -> None:
    locks = sorted((SOURCE / "packaging/requirements").glob("*.txt"))
    target = ("install", "--no-compile", "--target", str(tree))
    if locks:
        _pip(*target, "--require-hashes", "--only-binary=:all:", *(f"--requirement={path}" for path in locks))
    _pip(*target, *(("--no-deps", "--upgrade") if locks else ()), str(wheel))


def _reduce(tree: Path) -> None:
    """Remove what no program reads, and what differs between two builds of one commit."""
    shutil.rmtree(tree / "bin", ignore_errors=True)
    for pattern in _LEFT_OUT:
        for path in tree.rglob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for notes in tree.glob("*.dist-info"):
        for name in _NOTES_OF_PIP:
            (notes / name).unlink(missing_ok=True)
        record = notes / "RECORD"
        lines = (line for line in record.read_text().splitlines() if (tree / line.split(",", 1)[0]).exists())
        record.write_text("".join(f"{line}\n" for line in sorted(lines) if not line.startswith("../")))
    _run(
        "strip", "--strip-unneeded", "--enable-deterministic-archives", *map(str, sorted(tree.rglob("*.so")))
    )


def _compile(tree: Path) -> None:
    """Byte code that is not compared with its source again: a package's files do not change."""
    _run(
        *(sys.executable, "-X", "no_debug_ranges", "-m", "compileall", "-q"),
        *("--invalidation-mode", "unchecked-hash", "-s", str(tree), "-p", INSTALLED, str(tree)),
    )


def _missing() -> str | None:
    """What building needs and this machine lacks."""
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        return "a C compiler"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return None if header.exists() else str(header)


def _build_wheel(scratch: Path) -> Path:
    """From a copy of the sources: setuptools leaves its own marks beside what it builds."""
    copy = scratch / "source"
    ignored = shutil.ignore_patterns(
        ".*", "build", "dist", "docs", "tests", "devkit", "vcnode_demo", "__pycache__", "*.egg-info"
    )
    shutil.copytree(SOURCE, copy, ignore=ignored)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(scratch), str(copy), compiled=True)
    return next(scratch.glob("vcnode-*.whl"))


def _pip(*words: str, compiled: bool = False) -> None:
    _run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words, compiled=compiled)


def _run(*words: str, compiled: bool = False) -> None:
    fixed = {
        "VCNODE_COMPILE": "1" if compiled else "0",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": "315532800",
    }
    environment = {**os.environ, **fixed}  # noqa: TID251 - see setup.py
    subprocess.run(words, check=True, env=environment)  # noqa: S603 - our own words


def _write_launchers(tree: Path) -> None:
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    python = Path(sys.executable).resolve()
    (tree / "bin").mkdir()
    for name, target in project["scripts"].items():
        module, _, function = target.partition(":")
        launcher = tree / "bin" / name
        launcher.write_text(_LAUNCHER.format(python=python, module=module, function=function))
        launcher.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
