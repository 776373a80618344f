# SPDX-License-Identifier: Apache-2.0
"""A client of one API server in a process of its own: `python -m tests.bench.asking KUBECONFIG`.

It asks for the same small list again and again, in turn on a connection that it keeps, as client-go does, and
on a connection of its own, as each start of kubectl does. SIGTERM ends it. Then it prints `Asked` as JSON.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from devkit.pki import Leaf
from tests.k8s.operator import client_process
from tests.k8s.ring.kubectl import Kubectl

_PATH = "/api/v1/namespaces/default/configmaps"
_PAUSE_S = 0.02
_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Asked:
    """What the requests took, in seconds, and what failed. Empty until the client has ended."""

    kept: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, more: Asked) -> None:
        """Those of another client too."""
        self.kept += more.kept
        self.own += more.own
        self.failures += more.failures

    def check(self) -> None:
        """None failed, and there were some of both."""
        assert self.failures == []
        assert self.kept
        assert self.own


@contextmanager
def asked(kubectl: Kubectl) -> Iterator[Asked]:
    """The client asks within, as who `kubectl` is; the times are complete afterwards.

    Raises:
        RingError: it did not start.
    """
    times = Asked()
    argv = [*kubectl.network.enter, sys.executable, "-m", "tests.bench.asking", str(kubectl.kubeconfig)]
    with client_process.running("tests.bench.asking", argv) as found:
        yield times
    times.add(Asked(**found))


def _server(kubeconfig: dict[str, Any]) -> tuple[str, int, ssl.SSLContext]:
    """The address of its first cluster, and how to connect as its first user."""
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    address, _, port = cluster["server"].removeprefix("https://").partition(":")
    context = ssl.create_default_context(
        cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
    )
    Leaf.from_pem(
        base64.b64decode(user["client-certificate-data"]), base64.b64decode(user["client-key-data"])
    ).load_into(context)
    return address, int(port), context


def _ask(connection: http.client.HTTPSConnection) -> float:
    """One request and its whole answer; how long both took."""
    began = time.monotonic()
    connection.request("GET", _PATH)
    answer = connection.getresponse()
    answer.read()
    if answer.status != http.HTTPStatus.OK:
        raise OSError(f"status {answer.status}")
    return time.monotonic() - began


def _work(kubeconfig: Path, over: threading.Event) -> Asked:
    address, port, context = _server(yaml.safe_load(kubeconfig.read_text()))
    found = Asked()

    def connect() -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(address, port, timeout=_TIMEOUT_S, context=context)

    kept = connect()
    _ask(kept)
    sys.stdout.write("asking\n")
    sys.stdout.flush()
    while not over.is_set():
        try:
            found.kept.append(_ask(kept))
            own = connect()
            found.own.append(_ask(own))
            own.close()
        except (OSError, http.client.HTTPException) as error:
            found.failures.append(repr(error))
            kept = connect()
        # pace: the processors are the control planes'
        over.wait(_PAUSE_S)
    return found


def main() -> int:
    """Ask until SIGTERM, and print the times."""
    # As a client on another machine: it waits for no processor.
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    sys.stdout.write(json.dumps(asdict(_work(Path(sys.argv[1]), over))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
