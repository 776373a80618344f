# SPDX-License-Identifier: Apache-2.0
"""Builds the tree that packages install: `python packaging/tree.py DIRECTORY`, or checks with `--check`
whether it can (exit code 0; 1 prints what is missing).

The tree has our packages except the demo and the fakes, with the byte path compiled (setup.py lists its
modules). It has their dependencies, byte code, and a launcher for each daemon in `bin/`. A launcher runs the
interpreter that built the tree, isolated (`python -ISE`): without user site and environment, with the
standard library and this directory alone. `-X no_debug_ranges` leaves out the columns of each instruction,
which only underline the lines of a trace: 0.2 MB of vn-agent. A launcher finds the tree from its own place,
so a tree may be copied. The build needs a C compiler and Python's headers; setuptools and mypy come from the
interpreter that runs this. Exit code 1: the build failed.
"""

import compileall
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
_LAUNCHER = """\
#!{python} -ISEXno_debug_ranges
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from {module} import {function}

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
            _pip("install", "--no-compile", "--target", str(tree), str(wheel))
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"tree: {' '.join(error.cmd)} ended with {error.returncode}\n")
        return 1
    shutil.rmtree(tree / "bin", ignore_errors=True)
    _write_launchers(tree)
    return 0 if compileall.compile_dir(tree, quiet=1) else 1


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
    environment = {**os.environ, "VCNODE_COMPILE": "1" if compiled else "0"}  # noqa: TID251 - see setup.py
    subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words],
        check=True,
        env=environment,
    )


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
