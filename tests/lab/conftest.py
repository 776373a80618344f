# SPDX-License-Identifier: Apache-2.0
"""Network namespaces for each test, or one skip with the reason."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.namespaces import SYSTEM_PATH, Lab
from tests.rings.left_out import items_below, leave_out

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
    """Where the ring cannot run, skip one test with the reason."""
    ring_items = items_below(Path(__file__).parent, items)
    if ring_items and (lacks := _lacks()):
        leave_out(config, items, ring_items, f"lab ring: {'; '.join(lacks)}", "--require-lab")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Creates network namespaces with a prefix of the test's own, and removes them with their processes."""
    with Lab(tmp_path) as made:
        yield made


def _lacks() -> list[str]:
    """The missing requirements of this machine, as text."""
    if not sys.platform.startswith("linux"):
        return ["needs Linux"]
    lacks = [] if os.geteuid() == 0 else ["needs root"]
    packages = {package for name, package in _PROGRAMS.items() if not shutil.which(name, path=SYSTEM_PATH)}
    if packages:
        lacks.append(f"apt-get install {' '.join(sorted(packages))}")
    return lacks
