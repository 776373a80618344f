# SPDX-License-Identifier: Apache-2.0
"""The other commands that use streams: attach, cp, port-forward and debug."""

from __future__ import annotations

import hashlib
import http.client
import random
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.images import BUSYBOX
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.pods import HTTP_PORT
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.tenants import RingTenant, container_state

_COPIED_BYTES = 64 << 20
_INSIDE = "/srv/copied"
_AT_ONCE = 40


def test_attach(streaming: Kubectl) -> None:
    process = streaming.start("attach", "-i", "answerer", stdin=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        for word in ("one", "two"):
            process.stdin.write(f"{word}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline() == f"received {word}\n".encode()
    finally:
        process.kill()
        process.communicate()


def test_copy_there_and_back(streaming: Kubectl, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(random.Random(2).randbytes(_COPIED_BYTES))  # noqa: S311 - test data
    digest = hashlib.sha256(there.read_bytes()).hexdigest()
    try:
        streaming("cp", str(there), f"web:{_INSIDE}", "-c", "main").check()
        inside = streaming("exec", "web", "-c", "main", "--", "sha256sum", _INSIDE).check()
        assert inside.text.split()[0] == digest
        streaming("cp", f"web:{_INSIDE}", str(back), "-c", "main").check()
        assert hashlib.sha256(back.read_bytes()).hexdigest() == digest
    finally:
        streaming("exec", "web", "-c", "main", "--", "rm", "-f", _INSIDE)


def test_http_through_a_forwarded_port(streaming: Kubectl) -> None:
    with _forwarded(streaming, HTTP_PORT) as port:
        assert _get(streaming, port) == (200, b"page of acme\n")


def test_many_connections_through_one_forwarded_port(streaming: Kubectl) -> None:
    with (
        _forwarded(streaming, HTTP_PORT) as port,
        ThreadPoolExecutor(_AT_ONCE) as threads,
    ):
        pages = list(threads.map(lambda _: _get(streaming, port), range(3 * _AT_ONCE)))
    assert pages == [(200, b"page of acme\n")] * (3 * _AT_ONCE)


def test_forwarded_port_without_a_listener(streaming: Kubectl) -> None:
    with _forwarded(streaming, 9) as port, pytest.raises(ConnectionError):
        _get(streaming, port)


def test_debug_adds_a_container_whose_logs_can_be_read(
    served: Ring, acme: RingTenant, streaming: Kubectl
) -> None:
    name = f"debug-{'ws' if streaming.websockets else 'spdy'}"
    streaming(
        *("debug", "only-acme", f"--image={BUSYBOX}", f"--container={name}"),
        *("--", "sh", "-c", "echo from the debugger; exec sleep 100000"),
    ).check()
    served.syncer.copy_ephemeral_containers(acme, "default", "only-acme")
    served.syncer.wait_status(
        acme,
        "default",
        "only-acme",
        lambda pod: "running" in container_state(pod, name).get("state", {}),
    )

    def logged() -> bool:
        return streaming("logs", "only-acme", "-c", name).text == "from the debugger\n"

    # The agent learns of the container from the kubelet, at its next look or at the first question.
    wait_for("logs of the ephemeral container", logged, timeout_s=10)
    echoed = streaming("exec", "only-acme", "-c", name, "--", "echo", "inside").check()
    assert echoed.text == "inside\n"


@contextmanager
def _forwarded(kubectl: Kubectl, remote: int) -> Iterator[int]:
    """Forward a free local port to `remote` of pod web and yield it."""
    process = kubectl.start("port-forward", "pod/web", f":{remote}", "--address=127.0.0.1")
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        found = re.search(r"Forwarding from 127\.0\.0\.1:(\d+) -> ", line)
        if found is None:
            process.kill()
            pytest.fail(f"no port forwarded: {line} {process.communicate()[1].decode()}")
        yield int(found.group(1))
    finally:
        process.kill()
        process.communicate()


def _get(kubectl: Kubectl, port: int) -> tuple[int, bytes]:
    """One HTTP request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.sock = kubectl.network.connect("127.0.0.1", port, timeout_s=30)
    try:
        connection.request("GET", "/", headers={"Connection": "close"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
