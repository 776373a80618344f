# SPDX-License-Identifier: Apache-2.0
"""What the guests run from: directories, which User-mode Linux mounts by itself (hostfs).

A guest sees of this machine /usr, its kernel's modules and an interpreter, all read-only. The agent
is nothing but the directories that a guest image has to be given, in byte code.
"""

from __future__ import annotations

import compileall
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import grpc

SOURCE = Path(__file__).parents[2]
MODULES = Path("/usr/lib/uml/modules")
_INSIDE = Path(__file__).parent / "inside"
# What packaging/guest/README.md lists, and tests/functional/kata_bridge/guest/test_closure.py holds.
_PACKAGES = ("daemonkit", "kata_bridge/api", "kata_bridge/guest", "ruleset")
_AGENT = (
    "import sys; sys.path.insert(0, '/agent'); from kata_bridge.guest.__main__ import main; sys.exit(main())"
)
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_EMPTY = ("usr", "proc", "sys", "dev", "run", "tmp", "agent", "python", "repository", "packages")
_ALTERNATIVES = ("iptables", "iptables-save", "iptables-restore")


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent's directory, one for all guests."""

    directory: Path

    @classmethod
    def build(cls, directory: Path) -> Agent:
        """Copy the packages and compile everything, since guests cannot write it."""
        (directory / "kata_bridge").mkdir(parents=True)
        shutil.copy(SOURCE / "kata_bridge" / "__init__.py", directory / "kata_bridge")
        for package in _PACKAGES:
            ignored = shutil.ignore_patterns("__pycache__", "testing*")
            shutil.copytree(SOURCE / package, directory / package, ignore=ignored)
        site = Path(grpc.__file__).parents[1]
        shutil.copytree(site / "grpc", directory / "grpc")
        shutil.copy(site / "typing_extensions.py", directory)
        # grpcio's own libraries, where the wheel has them beside the package.
        for libraries in site.glob("grpcio*.libs"):
            shutil.copytree(libraries, directory / libraries.name)
        compileall.compile_dir(directory, quiet=1)
        return cls(directory)


def make_root(root: Path, variables: dict[str, str], *, variant: str) -> None:
    """Make the root of one guest, where the plain name `iptables` leads to `variant`."""
    for name in _EMPTY:
        (root / name).mkdir(parents=True)
    for name, place in _LINKS.items():
        (root / name).symlink_to(place)
    (root / "share").mkdir()
    shutil.copytree(_INSIDE, root / "inside", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_INSIDE / "init", root / "init")
    (root / "modules" / "lib").mkdir(parents=True)
    (root / "modules" / "lib" / "modules").symlink_to(MODULES)
    alternatives = root / "etc" / "alternatives"
    alternatives.mkdir(parents=True)
    for name in _ALTERNATIVES:
        for each in (name, name.replace("ip", "ip6", 1)):
            target = each.replace("tables", f"tables-{variant}")
            (alternatives / each).symlink_to(f"/usr/sbin/{target}")
    (root / "etc" / "resolv.conf").write_text("nameserver 192.0.2.53\n")
    words = variables | {"PYTHON": str(python_inside()), "AGENT": _AGENT}
    (root / "etc" / "guest").write_text("".join(f'{name}="{word}"\n' for name, word in words.items()))


def mounts(root: Path, agent: Agent) -> list[tuple[Path, Path]]:
    """What to bind to what below `root`, all of it read-only."""
    found = [(Path("/usr"), root / "usr"), (agent.directory, root / "agent")]
    prefix, _ = _python()
    if prefix != Path("/usr"):
        found.append((prefix, root / "python"))
    found.append((SOURCE, root / "repository"))
    found.append((Path(grpc.__file__).parents[1], root / "packages"))
    return found


def python_inside() -> Path:
    """The interpreter's name in a guest."""
    return _python()[1]


def _python() -> tuple[Path, Path]:
    """This interpreter without its environment: where it is installed, and its name in a guest."""
    prefix = Path(sys.base_prefix)
    name = Path("bin") / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return prefix, (Path("/usr") if prefix == Path("/usr") else Path("/python")) / name
