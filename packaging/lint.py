# SPDX-License-Identifier: Apache-2.0
"""Examines built packages: `python packaging/lint.py DIRECTORY`.

lintian and rpmlint must find nothing but what lintian.toml and rpmlint.toml except. What vn-agent's package
and all packages of a node take on disk is printed, and limited. Exit code 1: a finding, or a package over its
limit. 2: a tool is absent.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import packages

_TOOLS = ("lintian", "rpmlint", "dpkg-deb")
# In MB of 10^6 bytes, with all packages that each depends on. vn-agent's had 8.6.
LIMITS = {"vcnode-agent": 10.0, "vcnode": 60.0}
# Debian's Installed-Size is in KiB.
_KIB = 1024


def main(argv: list[str]) -> int:
    """Run all. Returns the exit code."""
    directory = Path(argv[0])
    absent = [name for name in _TOOLS if shutil.which(name) is None]
    if absent:
        sys.stderr.write(f"packages: NOT EXAMINED, not installed: {', '.join(absent)}\n")
        return 2
    debs, rpms = sorted(directory.glob("*.deb")), sorted(directory.glob("*.rpm"))
    rules = packages.SOURCE / "packaging/rpmlint.toml"
    results = [
        _is_clean(["lintian", "--allow-root", "--quiet", "--fail-on", "error,warning", *map(str, debs)]),
        _is_clean(["rpmlint", "--strict", "--config", str(rules), *map(str, rpms)]),
        _fit(debs),
    ]
    return 0 if all(results) else 1


def _is_clean(words: list[str]) -> bool:
    # Their own cause of exit codes is in their output.
    return subprocess.run(words, check=False).returncode == 0  # noqa: S603 - our own words


def _fit(debs: Iterable[Path]) -> bool:
    """Whether the packages are within their limits; prints each size."""
    sizes = dict(_size(deb) for deb in debs)
    known = {package.name: package for package in packages.read()}
    fits = True
    for name, limit in LIMITS.items():
        taken = sum(sizes[each] for each in _closure(name, known)) * _KIB / 1e6
        sys.stdout.write(f"{name} with what it depends on: {taken:.1f} MB installed, at most {limit:.0f}\n")
        fits = fits and taken <= limit
    return fits


def _size(deb: Path) -> tuple[str, int]:
    words = ["dpkg-deb", "--showformat", "${Package} ${Installed-Size}", "--show", str(deb)]
    name, size = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()  # noqa: S603
    return name, int(size)


def _closure(name: str, known: dict[str, packages.Package]) -> set[str]:
    """The package and all of ours that it depends on."""
    found = {name}
    for each in known[name].depends:
        found |= _closure(each, known)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
