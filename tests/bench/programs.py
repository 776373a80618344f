# SPDX-License-Identifier: Apache-2.0
"""Builds the bench's Go programs once for each state of their source, outside the repository."""

import hashlib
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent
NAMES = ("peer", "upstream", "load")
# A cold build compiles crypto/tls and net/http for the first time on a slow machine.
BUILD_TIMEOUT_S = 600


class BuildError(Exception):
    """The Go programs could not be built; the message says why."""


def build(cache: Path) -> Path:
    """Return the directory with the programs `NAMES`, built now if the cache has not got them.

    Raises BuildError when Go is missing or the build fails.
    """
    go = shutil.which("go")
    if go is None:
        raise BuildError("no `go` on the path: the bench needs Go 1.24 or newer")
    version = subprocess.run([go, "version"], check=True, capture_output=True, timeout=30).stdout
    place = cache / _source_hash(version)
    if all((place / name).exists() for name in NAMES):
        return place
    place.mkdir(parents=True, exist_ok=True)
    packages = [f"./{name}" for name in NAMES]
    done = subprocess.run(
        [go, "build", "-trimpath", "-o", f"{place}/", *packages],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"go build failed:\n{done.stderr}")
    return place


def _source_hash(go_version: bytes) -> str:
    digest = hashlib.sha256(go_version)
    for path in sorted([SOURCE / "go.mod", *SOURCE.glob("*/*.go")]):
        digest.update(str(path.relative_to(SOURCE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
