# SPDX-License-Identifier: Apache-2.0
"""An empty Debian as a directory: Python, or given packages, made once and kept beside the programs."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from pathlib import Path

from tests.k8s.build import DEFAULT_CACHE
from tests.k8s.ring.processes import run

# The packages that the README requires of a node, and that the webhook's image has.
_PACKAGES = ("python3",)
_VARIANT = "minbase"
_MADE_S = 900.0
_UNPACKED_S = 120.0


def suite() -> str:
    """This machine's own Debian, whose interpreter built the tree."""
    return platform.freedesktop_os_release()["VERSION_CODENAME"]


def archive(packages: Sequence[str] = _PACKAGES, cache: Path = DEFAULT_CACHE.parent / "debian") -> Path:
    """The tree as a tar below `cache`; made where it is not there yet. Raises `RingError`."""
    key = hashlib.sha256(" ".join((suite(), _VARIANT, *packages)).encode()).hexdigest()[:16]
    target = cache / f"debian-{suite()}-{key}.tar"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}")
        argv = ["mmdebstrap", f"--variant={_VARIANT}", f"--include={','.join(packages)}", "--quiet"]
        run([*argv, "--format=tar", suite(), str(partial)], timeout_s=_MADE_S)
        partial.replace(target)
    return target


def unpack(tar: Path, root: Path) -> None:
    """Make `root` from it."""
    root.mkdir()
    run(
        ["tar", "--extract", "--file", str(tar), "--directory", str(root), "--exclude=./dev/*"],
        timeout_s=_UNPACKED_S,
    )
