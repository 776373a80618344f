# SPDX-License-Identifier: Apache-2.0
"""The contract that our client and reflector stand on, against a real kube-apiserver."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.k8s.ring.cluster import Ring

_ROOT = Path(__file__).resolve().parents[2]
_CONTRACTS = ("test_contract.py", "test_contract_of_writes.py", "test_contract_of_applies.py")
_TIMEOUT_S = 180.0


@pytest.mark.parametrize("contract", _CONTRACTS)
def test_the_real_apiserver_keeps_the_contract(ring: Ring, contract: str) -> None:
    """In a process of its own: it has to be in the network namespace of the control planes."""
    path = f"tests/functional/kube/{contract}"
    kubeconfig = ring.super_cluster.kubeconfig
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path]
    ended = subprocess.run(
        [*ring.control.enter, *program, f"--kubeconfig={kubeconfig}"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    output = f"{ended.stdout}{ended.stderr}"[-4000:]
    assert ended.returncode == 0, output
    rules = len(re.findall(r"^async def test_", (_ROOT / path).read_text(), re.MULTILINE))
    assert re.search(rf"^{rules} passed in ", ended.stdout, re.MULTILINE), output
