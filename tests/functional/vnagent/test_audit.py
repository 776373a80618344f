# SPDX-License-Identifier: Apache-2.0
"""The audit log under attack: no tenant loses its own or another one's lines, and a stream without room
for its line is refused."""

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemonkit.metrics import Registry
from devkit.kubelet.replies import FakeReply
from tests.functional.vnagent.node import DEADLINE_S, NAME, SPDY, AgentNode, head, reply_of
from tests.functional.vnagent.shop_and_bank import BANK, EXEC, SHOP, status_of
from tests.functional.vnagent.tls_peer import TlsPeer
from tests.waiting import wait_until
from vnagent.audit_log import AuditLog

CONNECTIONS = 200
LOGS, EXECS = 60, 20


class Flood:
    """Connections of one tenant that pipeline `/healthz` and read the responses, as fast as they can."""

    def __init__(self, node: AgentNode, key: str) -> None:
        self._ends = [self._connect(node, key) for _ in range(CONNECTIONS)]
        self._is_over = False
        self._thread = threading.Thread(target=self._run)

    def _connect(self, node: AgentNode, key: str) -> TlsPeer:
        sock = socket.create_connection(("127.0.0.1", node.daemon.port))
        sock.setblocking(False)
        far = TlsPeer(sock, node.context(key), is_server=False, name=NAME)
        far.handshake()

        def is_handshake_done() -> bool:
            far.push()
            far.pull()
            return far.is_handshake_done

        wait_until(is_handshake_done, within_s=DEADLINE_S)
        return far

    def _run(self) -> None:
        heads = head("GET /healthz") * 100
        while not self._is_over:
            for far in self._ends:
                if far.unsent_bytes < 4096:
                    far.write(heads)
                # In pieces, so that more arrives while the agent builds a response.
                far.push(2000)
                far.drain()

    def __enter__(self) -> "Flood":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        for far in self._ends:
            far.close()


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def open_exec(node: AgentNode) -> int | None:
    """The status of an exec on a connection of its own, which ends at once."""
    with node.client("ten-a") as client:
        client.send(head(EXEC, *SPDY))
        return status_of(reply_of(client))


def new_node(directory: Path, **settings: Any) -> AgentNode:
    node = AgentNode(directory / "n", ["ten-a", "ten-b"], [SHOP, BANK], settings)
    pods = directory / "pods.json"
    node.write_pod_file(pods)
    node.settings["pods"] = {"source": "file", "file": str(pods)}
    return node


@pytest.mark.parametrize("rate", [None, 0], ids=["rate", "no-rate"])
def test_a_flood_of_requests_loses_no_line(tmp_path: Path, rate: int | None) -> None:
    """200 connections that pipelined used to leave a neighbour 35 of 150 lines, and the attacker itself
    none of 30 execs."""
    settings = {} if rate is None else {"limits": {"requestsPerSecondPerTenant": rate}}
    with new_node(tmp_path, **settings) as node:
        begin_s = time.monotonic()
        with Flood(node, "ten-a"):
            for _ in range(LOGS):
                assert status_of(node.logs("ten-b", "web", "bank")) == 200
            statuses = [open_exec(node) for _ in range(EXECS)]
        took_s = time.monotonic() - begin_s
        assert node.daemon.metric("vcnode_vnagent_audit_lines_lost_total") == 0
        assert "audit: ok\n" in node.daemon.get("/readyz")[1]
        count = node.daemon.metric("vcnode_vnagent_requests_total")
        node.daemon.stop()
        lines = lines_of(node.directory / "audit.jsonl")
        assert len(lines) >= count
        assert sum(line["tenant"] == "ten-b" for line in lines) == LOGS
        execs = [line["status"] for line in lines if line["endpoint"] == "exec"]
        assert execs == statuses
        if rate is None:
            # The growth of the log is bounded: the default rate, a tenth of it in refusals, and a burst.
            assert len(lines) - LOGS - EXECS <= 1.1 * 1000 * (took_s + 2)
        else:
            assert statuses == [101] * EXECS


@contextlib.contextmanager
def slow_reader(path: Path, bytes_a_look: int) -> Iterator[list[bytes]]:
    """Reads a pipe slowly as long as it is there, and then the rest."""
    os.mkfifo(path)
    found: list[bytes] = []
    is_over = threading.Event()
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read() -> None:
        while not is_over.wait(0.02):
            with contextlib.suppress(BlockingIOError):
                found.append(os.read(descriptor, bytes_a_look))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()
        with contextlib.suppress(BlockingIOError):
            while data := os.read(descriptor, 1 << 20):
                found.append(data)
        os.close(descriptor)


def test_a_slow_audit_reader_delays_the_flood(tmp_path: Path) -> None:
    """`audit.file` is a pipe with a reader of 0.2 MB/s. The flood's further requests wait."""
    fifo = tmp_path / "audit"
    limits = {"requestsPerSecondPerTenant": 0}
    node = new_node(tmp_path, limits=limits, audit={"file": str(fifo)})
    with slow_reader(fifo, 4096) as found, node:
        with Flood(node, "ten-a"):
            for _ in range(LOGS):
                assert status_of(node.logs("ten-b", "web", "bank")) == 200
            # Without waiting the flood would have written 8 MiB of lines by then.
            wait_until(lambda: sum(map(len, found)) >= 512 << 10, within_s=DEADLINE_S)
        assert node.daemon.metric("vcnode_vnagent_audit_lines_lost_total") == 0
        wait_until(lambda: b"".join(found).count(b'"tenant":"ten-b"') == LOGS, within_s=4 * DEADLINE_S)


def test_streams_are_refused_without_room_for_their_line(tmp_path: Path) -> None:
    """A full disk: a tenant that has used its part of the buffer gets logs and no streams, its neighbour
    gets both. Each lost line is counted."""
    settings = {"audit": {"file": "/dev/full"}, "limits": {"requestsPerSecondPerTenant": 0}}
    with new_node(tmp_path, **settings) as node:
        assert open_exec(node) == 101
        assert node.daemon.metric("vcnode_vnagent_audit_lines_lost_total") == 0  # its line waits, for a while
        fill(node, 10_000)
        wait_until(lambda: "lines are being lost" in node.daemon.get("/readyz")[1], within_s=DEADLINE_S)
        assert "No space left on device" in node.daemon.get("/readyz")[1]
        before = node.daemon.metric("vcnode_vnagent_audit_lines_lost_total")
        assert before > 0
        with node.client("ten-a") as client:
            client.send(head(EXEC, *SPDY))
            reply = reply_of(client)
        assert reply is not None
        assert (reply.status, reply.values("Retry-After")) == (503, ["1"])
        status = json.loads(reply.body)
        assert (status["kind"], status["code"]) == ("Status", 503)
        assert "audit log" in status["message"]
        assert not [e for e in node.kubelet.requests("/exec") if e.is_upgrade][1:]
        assert node.daemon.metric("vcnode_vnagent_audit_lines_lost_total") == before + 1
        assert status_of(node.logs("ten-a", "web", "shop")) == 200
        assert node.daemon.metric("vcnode_vnagent_audit_lines_lost_total") == before + 2
        for once in ("audit log cannot be written", "audit lines are lost"):
            assert node.daemon.log_tail(50_000).count(once) == 1
        with node.client("ten-b") as client:
            client.send(head("POST /exec/web/bank/app?command=cat&output=1", *SPDY))
            assert status_of(reply_of(client)) == 101
        assert node.daemon.metric("vcnode_vnagent_audit_lines_lost_total") == before + 2
        node.daemon.stop()
        assert node.daemon.exit_code == 0


def test_a_pipe_without_a_reader_does_not_delay_start(tmp_path: Path) -> None:
    """The start once hung. The agent serves; streams are refused once their lines find no room."""
    fifo = tmp_path / "audit"
    os.mkfifo(fifo)
    settings = {"audit": {"file": str(fifo)}, "limits": {"requestsPerSecondPerTenant": 0}}
    with new_node(tmp_path, **settings) as node:
        assert "audit: cannot be written (no process reads the named pipe" in node.daemon.get("/readyz")[1]
        assert open_exec(node) == 101
        fill(node, 10_000)
        assert open_exec(node) == 503
        found: list[bytes] = []
        descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

        def drain_pipe() -> bool:
            with contextlib.suppress(BlockingIOError):
                found.append(os.read(descriptor, 1 << 20))
            lines = b"".join(found).count(b"\n")
            lost = node.daemon.metric("vcnode_vnagent_audit_lines_lost_total")
            return lost > 0 and lines + lost == node.daemon.metric("vcnode_vnagent_requests_total")

        wait_until(drain_pipe, within_s=4 * DEADLINE_S)
        assert "audit: ok" in node.daemon.get("/readyz")[1]
        assert open_exec(node) == 101
        os.close(descriptor)
        first = json.loads(b"".join(found).splitlines()[0])
        assert (first["endpoint"], first["status"]) == ("exec", 101)


def test_a_socket_as_audit_file_is_refused(tmp_path: Path) -> None:
    """open(2) fails as for a pipe without a reader, forever."""
    path = tmp_path / "audit"
    loop = asyncio.new_event_loop()
    lost = Registry().counter("vcnode_vnagent_audit_lines_lost_total", "Lines.")
    with socket.socket(socket.AF_UNIX) as listener, contextlib.closing(loop):
        listener.bind(str(path))
        with pytest.raises(OSError, match="No such device or address"):
            AuditLog(loop, path, lost).open()


def test_optional_audit_does_not_refuse_streams(tmp_path: Path) -> None:
    limits = {"requestsPerSecondPerTenant": 0}
    with new_node(tmp_path, audit={"file": "/dev/full", "required": False}, limits=limits) as node:
        fill(node, 10_000)
        before = node.daemon.metric("vcnode_vnagent_audit_lines_lost_total")
        assert before > 0
        assert open_exec(node) == 101
        assert node.daemon.metric("vcnode_vnagent_audit_lines_lost_total") == before + 1


def fill(node: AgentNode, count: int) -> None:
    with node.client("ten-a") as client:
        for _ in range(count // 100):
            client.received.clear()
            client.send(head("GET /healthz") * 100)
            while client.received.count(b"\r\n\r\nok") < 100:
                assert client.receive(DEADLINE_S)


def test_an_abandoned_request_has_an_audit_line(tmp_path: Path) -> None:
    """A pod that the index does not know is looked for at the kubelet once more, and the client leaves."""
    with AgentNode(tmp_path / "n", ["ten-a"], [SHOP]) as node:
        node.kubelet.script = lambda exchange: (
            FakeReply(503, (), b"", delay_s=DEADLINE_S) if exchange.path == "/pods" else None
        )

        def is_waiting() -> bool:
            """The agent asks the kubelet at most once a second. It answers earlier requests at once."""
            with node.client("ten-a") as client:
                client.send(head("GET /containerLogs/web/new/app"))
                return client.receive(0.3) == b""

        wait_until(is_waiting, within_s=DEADLINE_S)
        wait_until(
            lambda: "client-left-undecided" in (node.directory / "audit.jsonl").read_text(),
            within_s=DEADLINE_S,
        )
        (line,) = [each for each in lines_of(node.directory / "audit.jsonl") if each["status"] == 499]
        assert (line["tenant"], line["endpoint"]) == ("ten-a", "containerLogs")
        # The pod's owner was unknown: a line with `allow` could name any tenant's pod.
        assert (line["reason"], line["decision"]) == ("client-left-undecided", "deny")
