# SPDX-License-Identifier: Apache-2.0
"""Builds the bench's Go programs once for each state of their source, outside the repository."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.bench.processes import RunError

SOURCE = Path(__file__).parent
NAMES = ("peer", "upstream", "load")
# A cold build compiles crypto/tls and net/http for the first time on a slow machine.
BUILD_TIMEOUT_S = 600

T = TypeVar("T")


class BuildError(Exception):
    """The Go programs could not be built; the message has the reason."""


def build(cache: Path) -> Path:
    """Return the directory with the programs `NAMES`, built now if the cache lacks them.

    Raises BuildError when Go is missing or the build fails.
    """
    go = shutil.which("go")
    if go is None:
        raise BuildError("no `go` on the path: the bench needs Go 1.24 or newer")
    version = subprocess.run([go, "version"], check=True, capture_output=True, timeout=30).stdout
    directory = cache / _source_hash(version)
    if all((directory / name).exists() for name in NAMES):
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    packages = [f"./{name}" for name in NAMES]
    done = subprocess.run(
        [go, "build", "-trimpath", "-o", f"{directory}/", *packages],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"go build failed:\n{done.stderr}")
    return directory


def run_with(cache: Path, measure: Callable[[Path, Path], T]) -> T | None:
    """Build the programs and call `measure` with their directory and a scratch one.

    None, and a line on stderr, where the build or something that `measure` runs fails.
    """
    try:
        programs = build(cache)
        with tempfile.TemporaryDirectory(prefix="vcnode-bench-") as scratch:
            return measure(programs, Path(scratch))
    except (BuildError, RunError) as error:
        sys.stderr.write(f"bench: {error}\n")
        return None


def _source_hash(go_version: bytes) -> str:
    digest = hashlib.sha256(go_version)
    for path in sorted([SOURCE / "go.mod", *SOURCE.glob("*/*.go")]):
        digest.update(str(path.relative_to(SOURCE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
