# SPDX-License-Identifier: Apache-2.0
"""An image of vc-signer: this machine's interpreter, and the sources that other daemons of the ring run from.

In that it differs from the shipped image, which packaging/image.py makes of an installed tree.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tests.k8s.ring import images
from tests.k8s.ring.processes import run
from tests.k8s.ring.shipped import ROOT

PYTHON = Path("/usr/bin/python3.11")
_PREFIX = "usr/lib/vcnode"
_PACKAGES = ("vc_signer", "daemonkit")
_LEFT_OUT = {"test", "idlelib", "lib2to3", "tkinter", "turtledemo", "pydoc_data", "ensurepip", "__pycache__"}
_LAUNCHER = f"""#!{PYTHON} -ISE
import sys

sys.path.insert(0, "/{_PREFIX}")
from vc_signer.__main__ import main

sys.exit(main())
"""


def write(archive: Path, image: str) -> None:
    """Write it as a tar that nodes import."""
    layers = [images.layer_of(dict(interpreter())), images.layer_of(dict(_sources()))]
    entry = f"/{_PREFIX}/bin/vc-signer"
    settings = {"Entrypoint": [entry], "Env": [f"PATH=/{_PREFIX}/bin:/usr/bin"], "User": "65534:65534"}
    images.write_archive(archive, image, layers, settings)


def interpreter() -> Iterator[tuple[str, tuple[bytes, int]]]:
    """It, its standard library, and the C libraries of both."""
    library = Path(sysconfig.get_path("stdlib"))
    extensions = sorted((library / "lib-dynload").glob("*.so"))
    needed = {path for program in (PYTHON, *extensions) for path in _libraries(program)}
    for path in sorted({PYTHON, *extensions, *needed}):
        yield str(path).removeprefix("/"), (path.read_bytes(), 0o755)
    for path in sorted(library.rglob("*.py")):
        if not _LEFT_OUT & set(path.relative_to(library).parts):
            yield str(path).removeprefix("/"), (path.read_bytes(), 0o644)


def _libraries(program: Path) -> Iterator[Path]:
    """By the paths under which the loader finds them."""
    for word in run(["ldd", str(program)]).decode().split():
        if word.startswith("/"):
            yield Path(word)


def _sources() -> Iterator[tuple[str, tuple[bytes, int]]]:
    for package in _PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield f"{_PREFIX}/{path.relative_to(ROOT)}", (path.read_bytes(), 0o644)
    yield f"{_PREFIX}/bin/vc-signer", (_LAUNCHER.encode(), 0o755)
