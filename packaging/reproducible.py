# SPDX-License-Identifier: Apache-2.0
"""Builds all packages of the last commit twice and compares their bytes: `python packaging/reproducible.py`.

The two builds differ in directory, umask, time zone, language, times of files, and order of Python's hashes.
Exit code 1: a file differs, and its name is printed; the two builds then stay for a comparison.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
_BUILDS: tuple[tuple[str, int, Mapping[str, str]], ...] = (
    ("first", 0o022, {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}),
    ("second-in-a-longer-path", 0o077, {"TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONHASHSEED": "2"}),
)


def main() -> int:
    """Build and compare. Returns the exit code."""
    scratch = Path(tempfile.mkdtemp(prefix="vcnode-reproducible-"))
    try:
        sums = [_build(scratch / name, umask, changed) for name, umask, changed in _BUILDS]
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"reproducible: {error.cmd} ended with {error.returncode}\n")
        return 1
    differing = [*_differing(*sums)]
    for name in differing:
        sys.stdout.write(f"differs: {name}\n")
    if differing:
        sys.stdout.write(f"both builds are in {scratch}\n")
        return 1
    sys.stdout.write(f"reproducible: {len(sums[0])} files have the same bytes in two builds\n")
    shutil.rmtree(scratch)
    return 0


def _build(directory: Path, umask: int, changed: Mapping[str, str]) -> dict[str, str]:
    """SHA-256 of each file that a clone in `directory` makes, by name."""
    environment = {**os.environ, **changed}  # noqa: TID251 - a build has no configuration file
    source, tree, out = directory / "source", directory / "tree", directory / "out"
    for words in (
        ["git", "clone", "--quiet", str(SOURCE), str(source)],
        [sys.executable, str(source / "packaging/tree.py"), str(tree)],
        [sys.executable, str(source / "packaging/packages.py"), "--tree", str(tree), "--out", str(out)],
    ):
        directory.mkdir(exist_ok=True)
        subprocess.run(words, check=True, env=environment, umask=umask)  # noqa: S603 - our own words
    lines = (out / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*first, *second}):
        if first.get(name) != second.get(name):
            yield name


if __name__ == "__main__":
    sys.exit(main())
