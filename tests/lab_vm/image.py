# SPDX-License-Identifier: Apache-2.0
"""The guests' files: directories, which User-mode Linux mounts by itself (hostfs).

A guest's /usr is this machine's with `packaging/guest/overlay.sh` over it, all of it read-only; so
the agent runs from a guest image's files alone, without this checkout.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import grpc

SOURCE = Path(__file__).parents[2]
MODULES = Path("/usr/lib/uml/modules")
AGENT = "/usr/bin/vcnode-guest-agent"
_INSIDE = Path(__file__).parent / "inside"
_OVERLAY = SOURCE / "packaging" / "guest" / "overlay.sh"
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_EMPTY = ("usr", "proc", "sys", "dev", "run", "tmp", "share", "python", "repository", "packages")
_ALTERNATIVES = ("iptables", "iptables-save", "iptables-restore")
_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Image:
    """The files that all guests share; `layer` is over this machine's own files."""

    layer: Path

    @classmethod
    def build(cls, directory: Path) -> Image:
        """Make it in `directory`."""
        subprocess.run(["sh", str(_OVERLAY), str(directory)], timeout=_DEADLINE_S, check=True)
        (directory / "usr" / "lib" / "modules").symlink_to(MODULES)
        prefix, name = _python()
        if prefix != Path("/usr"):
            # `packages` are for this interpreter's version, which need not be that of this machine.
            (directory / "usr" / "bin" / "python3").symlink_to(Path("/python") / name)
        return cls(directory)

    def mounts(self, root: Path) -> list[str]:
        """The commands that put it below `root`."""
        layers = f"lowerdir={self.layer / 'usr'}:/usr"
        binds = {"repository": SOURCE, "packages": Path(grpc.__file__).parents[1]}
        prefix, _ = _python()
        if prefix != Path("/usr"):
            binds["python"] = prefix
        commands = [f"mount -t overlay -o {shlex.quote(layers)} overlay {shlex.quote(str(root / 'usr'))}"]
        for name, target in binds.items():
            point = shlex.quote(str(root / name))
            commands.append(f"mount --bind {shlex.quote(str(target))} {point}")
            commands.append(f"mount -o remount,bind,ro {point}")
        return commands


def make_root(root: Path, variables: dict[str, str], *, variant: str) -> None:
    """Make the root of one guest, where the plain name `iptables` leads to `variant`."""
    for name in _EMPTY:
        (root / name).mkdir(parents=True)
    for name, target in _LINKS.items():
        (root / name).symlink_to(target)
    shutil.copytree(_INSIDE, root / "inside", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_INSIDE / "init", root / "init")
    alternatives = root / "etc" / "alternatives"
    alternatives.mkdir(parents=True)
    for name in _ALTERNATIVES:
        for each in (name, name.replace("ip", "ip6", 1)):
            target = each.replace("tables", f"tables-{variant}")
            (alternatives / each).symlink_to(f"/usr/sbin/{target}")
    (root / "etc" / "resolv.conf").write_text("nameserver 192.0.2.53\n")
    (root / "etc" / "guest").write_text("".join(f'{name}="{word}"\n' for name, word in variables.items()))


def _python() -> tuple[Path, Path]:
    """Where this interpreter is installed, its environment left aside, and its name there."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Path(sys.base_prefix), Path("bin") / name
