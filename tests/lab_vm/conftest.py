# SPDX-License-Identifier: Apache-2.0
"""One node with three guests for the whole ring, or one skip with the reason."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.k8s import build
from tests.lab.namespaces import SYSTEM_PATH
from tests.lab_vm import build as kernel_build
from tests.lab_vm import kernels
from tests.lab_vm.site import Site
from tests.rings.left_out import items_below, leave_out

# Program -> Debian package, the same packages as in packages.txt.
_PROGRAMS = {
    "linux.uml": "user-mode-linux",
    "modprobe": "kmod",
    "iptables-legacy": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "pgrep": "procps",
    "nft": "nftables",
}
# Of the k8s ring.
_COMPONENTS = ("etcd", "coredns", "kubernetes")
# Of the fixture `site`: guests with legacy iptables alone, and guests with nft.
_LEGACY, _NFT = "legacy", "nft"
_FIGURES = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ring's own option; it is known when tests/lab_vm is on the command line."""
    parser.getgroup("lab_vm").addoption(
        "--require-lab-vm",
        action="store_true",
        help="fail where the lab_vm ring cannot run, instead of leaving it out",
    )
    parser.getgroup("lab_vm").addoption(
        "--uml-cache",
        type=Path,
        default=kernel_build.DEFAULT_CACHE,
        help="where tests/lab_vm/build.py put the kernel that has nft",
    )
    parser.getgroup("lab_vm").addoption(
        "--require-lab-vm-names",
        action="store_true",
        help="fail where the programs of the k8s ring, with which names are tested, are not built",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add the ring's own mark."""
    config.addinivalue_line(
        "markers", "kernel(name): of the fixture `site`, with guests of that kernel alone"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where the ring or a part of it cannot run, skip one test with the reason."""
    ring_items = items_below(Path(__file__).parent, items)
    if ring_items and (lacks := _lacks()):
        leave_out(config, items, ring_items, f"lab_vm ring: {'; '.join(lacks)}", "--require-lab-vm")
        return
    others = [item for item in ring_items if _is_of_other_kernel(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
        ring_items = [item for item in ring_items if item not in others]
    needs_built = ring_items
    if kernels.can_run_debians():
        needs_built = [item for item in ring_items if _kernel_of(item) == _NFT]
    if needs_built and _find_kernel(config) is None:
        reason = "lab_vm ring: the kernel is not built: run python3 tests/lab_vm/build.py"
        leave_out(config, items, needs_built, reason, "--require-lab-vm")
    named = [item for item in ring_items if item.path.name == "test_names.py"]
    if named and (lacks := _find_programs(config)[1]):
        leave_out(config, items, named, f"lab_vm ring, names: {'; '.join(lacks)}", "--require-lab-vm-names")


def _kernel_of(item: pytest.Item) -> str:
    """The parameter of the fixture `site`; empty without it."""
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("site", "")) if callspec else ""


def _is_of_other_kernel(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("kernel")
    return mark is not None and _kernel_of(item) not in mark.args


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> list[str]:
    """The figures, for the end of the run's output."""
    return pytestconfig.stash.setdefault(_FIGURES, [])


@pytest.fixture(scope="session", params=[_LEGACY, _NFT])
def site(figures: list[str], request: pytest.FixtureRequest) -> Iterator[Site]:
    """The node and its guests. Each test replaces the rules of the one before."""
    program = _find_kernel(request.config)
    kernel = kernels.legacy(program)
    if request.param == _NFT:
        assert program is not None
        kernel = kernels.with_nft(program)
    with Site(kernel=kernel) as made:
        made.figures = figures
        yield made


@pytest.fixture(scope="session")
def k8s_programs(pytestconfig: pytest.Config) -> build.Binaries:
    """The programs of the k8s ring, from where that ring has them."""
    return _find_programs(pytestconfig)[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the figures."""
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


def _find_kernel(config: pytest.Config) -> Path | None:
    return kernel_build.find_kernel(config.getoption("--uml-cache", kernel_build.DEFAULT_CACHE))


def _find_programs(config: pytest.Config) -> tuple[build.Binaries, list[str]]:
    """The programs of the k8s ring, and the missing ones, in words."""
    version = build.go_version()
    if version is None:
        return build.Binaries({}), ["no Go compiler"]
    cache: Path = config.getoption("--k8s-cache", build.DEFAULT_CACHE)
    binaries, unbuilt = build.find_binaries(cache, version)
    lacks = [name for name in unbuilt if name in _COMPONENTS]
    if lacks:
        return binaries, [f"{', '.join(lacks)} not built: run python3 tests/k8s/build.py"]
    return binaries, []
