# SPDX-License-Identifier: Apache-2.0
"""Namespaces for each test, or one line that says why there are none."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.namespaces import SYSTEM_PATH, Lab

# Program -> Debian package, the same packages as in packages.txt.
_PROGRAMS = {
    "iptables-legacy": "iptables",
    "iptables-nft": "iptables",
    "ip6tables-legacy": "iptables",
    "ip6tables-nft": "iptables",
    "nft": "nftables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ring's own option; it is known when tests/lab is on the command line."""
    parser.getgroup("lab").addoption(
        "--require-lab",
        action="store_true",
        help="fail where the lab ring cannot run, instead of leaving it out",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where the ring cannot run, leave one test in to say so: one line, not a hundred."""
    here = Path(__file__).parent
    ours = [item for item in items if item.path.is_relative_to(here)]
    lacks = _lacks()
    if not ours or not lacks:
        return
    config.hook.pytest_deselected(items=ours[1:])
    items[:] = [item for item in items if item is ours[0] or item not in ours]
    reason = f"lab ring: {'; '.join(lacks)}"
    if config.getoption("--require-lab", False):
        raise pytest.UsageError(reason)
    ours[0].add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Makes network namespaces under a name of the test's own, and takes them away with all in them."""
    with Lab(tmp_path) as made:
        yield made


def _lacks() -> list[str]:
    """Everything that this machine lacks, in words."""
    if not sys.platform.startswith("linux"):
        return ["needs Linux"]
    lacks = [] if os.geteuid() == 0 else ["needs root"]
    packages = {package for name, package in _PROGRAMS.items() if not shutil.which(name, path=SYSTEM_PATH)}
    if packages:
        lacks.append(f"apt-get install {' '.join(sorted(packages))}")
    return lacks
