# SPDX-License-Identifier: Apache-2.0
"""The real daemons of a node, beside a fake kubelet and a fake API server."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from daemonkit.status.server import StatusError, fetch
from tests.functional.healthy_node import DAEMONS
from tests.functional.scraped_node import free_port
from tests.functional.vcnode.sick_node import ROOT, SickNode
from tests.waiting import wait_until

STARTED = ("kata-bridge", "kubeproxy-ext", "dnsconfig", "vn-agent")
DEADLINE_S = 60.0


def is_ready(path: Path) -> bool:
    try:
        return fetch(path, "/readyz", 2.0)[0] == 200
    except (OSError, StatusError):
        return False


@contextlib.contextmanager
def daemons(node: SickNode) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The real daemons of the node, ready."""
    files = node.files
    for name in DAEMONS.keys() - set(STARTED):
        files.config(name).unlink()
    # Guests come from files: a runtime with NRI is of the ring k8s.
    files.documents["kata-bridge"].pop("gate")
    files.write_config("kata-bridge", sandboxes={"directory": str(node.directory / "guests")})
    files.write_config("vn-agent", listen={"address": "127.0.0.1", "port": free_port()})
    processes: dict[str, subprocess.Popen[bytes]] = {}
    with (node.directory / "daemons.log").open("ab") as log:
        try:
            for name in STARTED:
                command = [sys.executable, "-m", DAEMONS[name], "--config", str(files.config(name))]
                processes[name] = subprocess.Popen(command, cwd=ROOT, stderr=log)
            run = node.directory / "run"
            for name in STARTED:
                wait_until(lambda name=name: is_ready(run / f"{name}.sock"), within_s=DEADLINE_S)  # type: ignore[misc] # a default binds the loop's variable
            yield processes
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
