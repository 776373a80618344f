# SPDX-License-Identifier: Apache-2.0
"""One node with three guests for the whole ring, or one line that says why there is none."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.k8s import build
from tests.lab.namespaces import SYSTEM_PATH
from tests.lab_vm.site import Site

# Program -> Debian package, the same packages as in packages.txt.
_PROGRAMS = {
    "linux.uml": "user-mode-linux",
    "modprobe": "kmod",
    "iptables-legacy": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "pgrep": "procps",
}
_FIGURES = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ring's own option; it is known when tests/lab_vm is on the command line."""
    parser.getgroup("lab_vm").addoption(
        "--require-lab-vm",
        action="store_true",
        help="fail where the lab_vm ring cannot run, instead of leaving it out",
    )
    parser.getgroup("lab_vm").addoption(
        "--require-lab-vm-names",
        action="store_true",
        help="fail where the programs of the k8s ring, with which names are tested, are not built",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where the ring cannot run, leave one test in to say so: one line, not a dozen."""
    here = Path(__file__).parent
    ours = [item for item in items if item.path.is_relative_to(here)]
    lacks = _lacks()
    if not ours or not lacks:
        return
    config.hook.pytest_deselected(items=ours[1:])
    items[:] = [item for item in items if item is ours[0] or item not in ours]
    reason = f"lab_vm ring: {'; '.join(lacks)}"
    if config.getoption("--require-lab-vm", False):
        raise pytest.UsageError(reason)
    ours[0].add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def site(pytestconfig: pytest.Config) -> Iterator[Site]:
    """The node and its guests. What one test puts into a guest, the next one replaces."""
    with Site() as made:
        pytestconfig.stash[_FIGURES] = made.figures
        yield made


@pytest.fixture(scope="session")
def k8s_programs(pytestconfig: pytest.Config) -> build.Binaries:
    """The programs of the k8s ring, from where that ring has them."""
    version = build.go_version()
    cache: Path = pytestconfig.getoption("--k8s-cache", build.DEFAULT_CACHE)
    lacks = ["no Go compiler"]
    if version is not None:
        binaries, unbuilt = build.find_binaries(cache, version)
        if not unbuilt:
            return binaries
        lacks = [f"{', '.join(unbuilt)} not built: run python3 tests/k8s/build.py"]
    reason = f"lab_vm ring, names: {'; '.join(lacks)}"
    if pytestconfig.getoption("--require-lab-vm-names", False):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was measured."""
    figures = config.stash.get(_FIGURES, [])
    if figures:
        terminalreporter.section("figures of guests with kernels of their own")
        terminalreporter.write("".join(f"{figure}\n" for figure in figures))


def _lacks() -> list[str]:
    """Everything that this machine lacks, in words."""
    if not sys.platform.startswith("linux"):
        return ["needs Linux"]
    lacks = [] if os.geteuid() == 0 else ["needs root"]
    if not Path("/dev/net/tun").exists():
        lacks.append("needs /dev/net/tun")
    packages = {package for name, package in _PROGRAMS.items() if not shutil.which(name, path=SYSTEM_PATH)}
    if packages:
        lacks.append(f"apt-get install {' '.join(sorted(packages))}")
    return lacks
