# SPDX-License-Identifier: Apache-2.0
"""What the ring needs of the machine that it runs on."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.k8s import build
from tests.k8s.ring.processes import SYSTEM_PATH

# Program -> Debian package, the same packages as in packages.txt.
_PROGRAMS = {
    "runc": "runc",
    "iptables": "iptables",
    "iptables-legacy": "iptables",
    "nft": "nftables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "gcc": "gcc",
    "busybox": "busybox-static",
    "linux.uml": "user-mode-linux",
    "modprobe": "kmod",
    "mmdebstrap": "mmdebstrap",
}
_CNI_PLUGINS = ("bridge", "host-local", "loopback")


def lacking(program: str, package: str) -> list[str]:
    """What to install for a further program, in words; nothing if it is there."""
    return [] if shutil.which(program, path=SYSTEM_PATH) else [f"apt-get install {package}"]


def find(cache: Path) -> tuple[build.Binaries, list[str]]:
    """The ring's programs, and everything that this machine lacks, in words."""
    nothing = build.Binaries({})
    if not sys.platform.startswith("linux"):
        return nothing, ["needs Linux"]
    lacks: list[str] = []
    if os.geteuid() != 0:
        lacks.append("needs root")
    packages = {package for name, package in _PROGRAMS.items() if not shutil.which(name, path=SYSTEM_PATH)}
    if not all((Path("/usr/lib/cni") / name).exists() for name in _CNI_PLUGINS):
        packages.add("containernetworking-plugins")
    if packages:
        lacks.append(f"apt-get install {' '.join(sorted(packages))}")
    version = build.go_version()
    if version is None:
        return nothing, [*lacks, "no Go compiler"]
    binaries, unbuilt = build.find_binaries(cache, version)
    if unbuilt:
        lacks.append(f"{', '.join(unbuilt)} not built: run python3 tests/k8s/build.py")
    older, _ = build.find_binaries(cache, version, build.OLDER)
    return build.Binaries(binaries.paths | older.paths), lacks
