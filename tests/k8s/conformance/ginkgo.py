# SPDX-License-Identifier: Apache-2.0
"""Runs a selection of e2e.test with ginkgo, in the control planes' network, and reads its report."""

from __future__ import annotations

import json
from pathlib import Path

from tests.k8s.build import Binaries
from tests.k8s.conformance.results import SpecResult, results
from tests.k8s.ring.controlplane import Apiserver
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingError, RingProcess, wait_for

# Beyond ginkgo's own time limit: it asks its processes to end, and writes the report.
_GRACE_S = 180.0


def run(
    title: str,
    apiserver: Apiserver,
    network: NetworkNamespace,
    binaries: Binaries,
    pattern: str,
    target: Path,
    *,
    processes: int,
    timeout_s: int,
    skip: str = "",
) -> list[SpecResult]:
    """Run the specs that match `pattern` at this API server; logs and the report go to `target`.

    Raises:
        RingError: ginkgo wrote no report.
    """
    report, log = target / f"{title}.json", target / f"{title}.log"
    for path in (report, log):
        path.unlink(missing_ok=True)
    process = RingProcess(
        f"ginkgo {title}",
        [
            *network.enter,
            *("nice", "-n", "10", binaries["ginkgo"]),
            f"--procs={processes}",
            f"--timeout={timeout_s}s",
            "--silence-skips",
            "--no-color",
            f"--focus={pattern}",
            *([f"--skip={skip}"] if skip else []),
            f"--json-report={report.name}",
            f"--output-dir={target}",
            binaries["e2e.test"],
            "--",
            "--provider=skeleton",
            f"--kubeconfig={apiserver.kubeconfig}",
            f"--kubectl-path={binaries['kubectl']}",
            "--num-nodes=2",
        ],
        log,
        directory=target,
    )
    try:
        wait_for(process.name, lambda: not process.is_running(), timeout_s=timeout_s + _GRACE_S)
    finally:
        process.stop()
    if not report.exists():
        raise RingError(f"{process.name}: no report: {process.tail()}")
    return results(json.loads(report.read_text()))
