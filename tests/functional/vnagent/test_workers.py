# SPDX-License-Identifier: Apache-2.0
"""Several processes serve one node: what is revoked, limited and audited holds over all of them."""

import contextlib
import fcntl
import json
import os
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daemonkit.run.lifecycle import EXIT_FAILED
from tests.cases.client import CaseClient, receive_reply
from tests.cases.daemon import VnAgentProcess
from tests.functional.vnagent import failing_supervision
from tests.functional.vnagent.node import DEADLINE_S, SPDY, AgentNode, head, received, reply_of, tenant_pod
from tests.functional.vnagent.shop_and_bank import (
    BANK,
    CUT_WITHIN_S,
    EXEC,
    FOLLOW,
    SHOP,
    echoes,
    many,
    status_of,
)
from tests.functional.vnagent.token_node import TokenNode
from tests.waiting import wait_until
from vnagent.workers.messages import SILENT_S

WORKERS = 2
# More than enough for each worker to have some: a connection goes to the one that has fewer.
CONNECTIONS = 8
PAGE = "GET /metrics/resource"


def new_node(directory: Path, **settings: Any) -> AgentNode:
    return AgentNode(directory / "n", ["ten-a", "ten-b"], [SHOP, BANK], {"workers": WORKERS, **settings})


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AgentNode]:
    with new_node(tmp_path) as node:
        yield node


def workers(node: AgentNode) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.daemon.status()["workers"]
    return found


def serving(node: AgentNode) -> list[int]:
    """The process identifiers of the workers that serve."""
    return [each["pid"] for each in workers(node) if each["isServing"]]


def pids_of(node: AgentNode) -> list[int]:
    """Of all workers, also those that do not serve yet."""
    return [each["pid"] for each in workers(node)]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextlib.contextmanager
def connections(node: AgentNode, key: str, count: int = CONNECTIONS) -> Iterator[list[CaseClient]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(node.client(key)) for _ in range(count)]


def ask_log(client: CaseClient, pod: str = "shop") -> int | None:
    """The status of one more log on a connection."""
    begin = len(client.received)
    client.send(head(f"GET /containerLogs/web/{pod}/app"))
    return status_of(receive_reply(client, "GET", DEADLINE_S, start=begin))


def pipelined(client: CaseClient, count: int) -> Callable[[], list[int]]:
    """Send so many requests at once; returns what reads the statuses of all."""
    client.send(head("GET /containerLogs/web/shop/app") * count)

    def statuses() -> list[int]:
        found = re.compile(rb"HTTP/1\.1 (\d{3}) ")
        deadline_s = time.monotonic() + DEADLINE_S
        while len(found.findall(client.received)) < count and time.monotonic() < deadline_s:
            client.receive(1.0)
        return [int(each) for each in found.findall(client.received)]

    return statuses


def audit_lines(node: AgentNode, name: str = "audit.jsonl") -> list[dict[str, Any]]:
    text = (node.directory / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def open_files(pid: int) -> Iterator[tuple[Path, Path]]:
    """Descriptors of a process and what they are open on, but for those that it closes just now."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield descriptor, descriptor.readlink()


@contextlib.contextmanager
def other_turn(node: AgentNode) -> Iterator[Callable[[], None]]:
    """No worker can write to the audit log until the end, or until what it gives is called."""
    shared = next(fd for fd, file in open_files(node.daemon.pid) if "vn-agent-usage" in str(file))
    with shared.open("r+b", buffering=0) as table:
        fcntl.lockf(table, fcntl.LOCK_EX, 1)
        yield partial(fcntl.lockf, table, fcntl.LOCK_UN, 1)


def test_connections_are_spread_and_counted_together(node: AgentNode) -> None:
    with connections(node, "ten-a") as clients:
        assert [each["connections"] for each in workers(node)] == [CONNECTIONS // WORKERS] * WORKERS
        assert node.daemon.status()["connections"] == CONNECTIONS
        for _ in range(5):
            assert [ask_log(client) for client in clients] == [200] * CONNECTIONS
        count = 5 * CONNECTIONS
        assert node.daemon.metric("vcnode_vnagent_requests_total") == count
        assert node.daemon.metric("vcnode_vnagent_workers") == WORKERS
        wait_until(lambda: len(audit_lines(node)) == count, within_s=DEADLINE_S)


def test_one_process_has_no_workers(tmp_path: Path) -> None:
    with new_node(tmp_path, workers=1) as node:
        assert workers(node) == []
        assert status_of(node.logs("ten-a", "web", "shop")) == 200


def test_a_removed_tenant_is_cut_in_all_workers(node: AgentNode) -> None:
    with (
        many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=4) as streams,
        many(node, "ten-a", FOLLOW, SHOP.marker, count=4) as follows,
        connections(node, "ten-a") as idle,
        connections(node, "ten-b", 2) as neighbours,
    ):
        (node.tenants_directory / "ten-a.yaml").unlink()
        for client in (*streams, *follows, *idle):
            assert client.receive_until_end(CUT_WITHIN_S)
        for client in neighbours:
            client.send(head("GET /containerLogs/web/bank/app"))
            assert status_of(reply_of(client)) == 200
    assert node.logs("ten-a", "web", "shop") is None
    node.write_tenant("ten-a")
    wait_until(lambda: status_of(node.logs("ten-a", "web", "shop")) == 200, within_s=DEADLINE_S)


def test_a_worker_that_does_not_apply_a_removal_ends(node: AgentNode) -> None:
    """It hangs: what was revoked must not go on there. Others go on."""
    with many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=4) as streams:
        stopped = serving(node)[0]
        os.kill(stopped, signal.SIGSTOP)
        (node.tenants_directory / "ten-a.yaml").unlink()
        for client in streams:
            assert client.receive_until_end(2 * DEADLINE_S)
        wait_until(lambda: not is_running(stopped), within_s=DEADLINE_S)
    wait_until(lambda: len(serving(node)) == WORKERS, within_s=DEADLINE_S)
    assert "it has not applied a change of tenants" in node.daemon.log_tail(20_000)


def test_no_worker_serves_for_a_main_process_that_hangs(node: AgentNode) -> None:
    """It would not learn what is revoked."""
    pids = serving(node)
    with many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=2) as streams:
        os.kill(node.daemon.pid, signal.SIGSTOP)
        try:
            (node.tenants_directory / "ten-a.yaml").unlink()
            for client in streams:
                assert client.receive_until_end(SILENT_S + DEADLINE_S)
        finally:
            os.kill(node.daemon.pid, signal.SIGCONT)
    wait_until(lambda: len(serving(node)) == WORKERS, within_s=DEADLINE_S)
    assert not set(pids) & set(serving(node))
    assert status_of(node.logs("ten-b", "web", "bank")) == 200


def test_a_worker_without_trust_gets_no_connection(node: AgentNode) -> None:
    """It starts while the serving key does not fit. The others have the last good one."""
    key = node.directory / "serving.key"
    good = key.read_bytes()
    key.write_bytes(node.tenants["ten-a"].leaf.key_pem)
    ended = serving(node)[0]
    os.kill(ended, signal.SIGKILL)
    wait_until(lambda: len(workers(node)) == WORKERS and ended not in pids_of(node), within_s=DEADLINE_S)
    wait_until(lambda: "serving.key" in node.daemon.get("/readyz")[1], within_s=DEADLINE_S)
    assert len(serving(node)) == WORKERS - 1
    for _ in range(CONNECTIONS):
        assert status_of(node.logs("ten-a", "web", "shop")) == 200
    key.write_bytes(good)
    wait_until(lambda: len(serving(node)) == WORKERS, within_s=DEADLINE_S)
    wait_until(lambda: "serving.key" not in node.daemon.get("/readyz")[1], within_s=DEADLINE_S)


def test_a_stop_does_not_wait_for_a_worker_that_starts(tmp_path: Path) -> None:
    with new_node(tmp_path, drain={"seconds": 600}) as node:
        os.kill(serving(node)[0], signal.SIGKILL)
        wait_until(lambda: "a worker has ended" in node.daemon.log_tail(), within_s=DEADLINE_S)
        node.daemon.signal(signal.SIGTERM)
        assert node.daemon.wait(2 * DEADLINE_S) == 0


def test_an_ended_worker_is_replaced(node: AgentNode) -> None:
    """Its connections end, the others' go on, and no counter falls."""
    with connections(node, "ten-a") as clients:
        assert [ask_log(client) for client in clients] == [200] * CONNECTIONS
        before = node.daemon.metric("vcnode_vnagent_requests_total")
        ended = serving(node)[0]
        os.kill(ended, signal.SIGKILL)
        wait_until(lambda: ended not in serving(node), within_s=DEADLINE_S)
        statuses = []
        for client in clients:
            with contextlib.suppress(OSError, RuntimeError):
                statuses.append(ask_log(client))
        assert statuses.count(200) == CONNECTIONS // WORKERS
        wait_until(lambda: len(serving(node)) == WORKERS, within_s=DEADLINE_S)
        assert node.daemon.metric("vcnode_vnagent_requests_total") == before + CONNECTIONS // WORKERS
        assert node.daemon.metric("vcnode_vnagent_workers_ended_total") == 1
    with connections(node, "ten-b", 2) as clients:
        for client in clients:
            client.send(head("GET /containerLogs/web/bank/app"))
            assert status_of(reply_of(client)) == 200


def test_no_worker_outlives_the_main_process(node: AgentNode) -> None:
    pids = serving(node)
    with many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=2) as streams:
        node.daemon.kill()
        for client in streams:
            assert client.receive_until_end(DEADLINE_S)
    wait_until(lambda: not any(map(is_running, pids)), within_s=DEADLINE_S)


def test_workers_without_supervision_end_with_the_daemon(tmp_path: Path) -> None:
    """What is revoked would reach them no more, and none that ends would be replaced."""
    node = new_node(tmp_path)
    node.daemon = VnAgentProcess(node.daemon.config, node.daemon.socket, module=failing_supervision.__name__)
    with node:
        pids = serving(node)
        node.daemon.signal(signal.SIGUSR2)
        assert node.daemon.wait(DEADLINE_S) == EXIT_FAILED
        assert not any(map(is_running, pids))


def test_a_stop_keeps_the_last_audit_lines_of_workers(node: AgentNode) -> None:
    """Each waits for its turn to write, which another worker may have just then: here this process."""
    with other_turn(node) as end_turn, node.client("ten-a") as client:
        assert ask_log(client) == 200
        node.daemon.signal(signal.SIGTERM)
        client.receive_until_end(DEADLINE_S)  # its worker drains
        assert audit_lines(node) == []
        end_turn()
        assert node.daemon.wait(DEADLINE_S) == 0
    assert [line["endpoint"] for line in audit_lines(node)] == ["containerLogs"]


def test_a_stop_finishes_the_streams_of_all_workers(node: AgentNode) -> None:
    pids = serving(node)
    with many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=4) as streams:
        for pid in (node.daemon.pid, *pids):  # as systemd and terminals signal a whole group
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: "workers finish their streams" in node.daemon.log_tail(), within_s=DEADLINE_S)
        for client in streams:
            assert echoes(client, b"still here")
        for client in streams:
            client.close()
        assert node.daemon.wait(DEADLINE_S) == 0
    assert not any(map(is_running, pids))
    assert sum(line["endpoint"] == "exec" for line in audit_lines(node)) == 4


@pytest.mark.parametrize(
    ("limit", "line", "headers"),
    [
        ("tunnelsPerTenant", EXEC, SPDY),
        ("logFollowsPerTenant", FOLLOW, ()),
    ],
)
def test_limits_hold_over_all_workers(
    tmp_path: Path, limit: str, line: str, headers: tuple[str, ...]
) -> None:
    with (
        new_node(tmp_path, limits={limit: 5}) as node,
        many(node, "ten-a", line, SHOP.marker, *headers, count=5) as streams,
    ):
        assert status_of(node.ask("ten-a", line, *headers)) == 429
        assert status_of(node.ask("ten-a", line, *headers)) == 429
        assert status_of(node.logs("ten-b", "web", "bank")) == 200
        streams[0].close()

        def is_served() -> bool:
            with node.client("ten-a") as client:
                client.send(head(line, *headers))
                return received(client, SHOP.marker.encode(), 2.0)

        wait_until(is_served, within_s=DEADLINE_S)


def test_connections_are_limited_over_all_workers(tmp_path: Path) -> None:
    with (
        new_node(tmp_path, limits={"connectionsPerTenant": 5}) as node,
        connections(node, "ten-a", 5) as clients,
    ):
        assert [ask_log(client) for client in clients] == [200] * 5
        assert [status_of(node.logs("ten-a", "web", "shop")) for _ in range(4)] == [429] * 4
        assert status_of(node.logs("ten-b", "web", "bank")) == 200


def test_a_rate_holds_over_all_workers(tmp_path: Path) -> None:
    """Each of the workers alone would serve a burst of 100, and refuse 100 more. A token that another worker
    takes between one's read and write is not counted: a few, on a busy machine."""
    with (
        new_node(tmp_path, limits={"requestsPerSecondPerTenant": 100}) as node,
        connections(node, "ten-a") as clients,
    ):
        begin_s = time.monotonic()
        results = [pipelined(client, 50) for client in clients]
        statuses = [status for result in results for status in result()]
        took_s = time.monotonic() - begin_s
    assert set(statuses) == {200, 429}
    assert statuses.count(200) <= 1.1 * 100 * (took_s + 1)
    assert statuses.count(429) <= 1.1 * (100 + 10 * took_s)


def test_a_new_pod_is_found_from_any_worker(tmp_path: Path) -> None:
    """The main process reads the pods for a worker, which has them before the answer."""
    with (
        new_node(tmp_path, pods={"source": "kubelet", "intervalSeconds": 300.0}) as node,
        connections(node, "ten-a") as clients,
    ):
        for number, client in enumerate(clients):
            name = f"new-{number}"
            node.kubelet.pods = (*node.kubelet.pods, tenant_pod("ten-a", "web", name))
            assert ask_log(client, name) == 200
            assert ask_log(client, f"none-{number}") == 404


def test_workers_share_one_read_of_a_page(tmp_path: Path) -> None:
    with (
        new_node(tmp_path, pages={"maxAgeSeconds": 60}) as node,
        connections(node, "ten-a") as clients,
        connections(node, "ten-b") as others,
    ):
        bodies: dict[str, set[bytes]] = {"ten-a": set(), "ten-b": set()}
        for key, each in (("ten-a", clients), ("ten-b", others)):
            for client in each:
                client.send(head(PAGE))
                reply = reply_of(client)
                assert reply is not None
                assert reply.status == 200
                bodies[key].add(reply.body)
        assert len(node.kubelet.requests("/metrics/resource")) == 1
        for key, pod, other in (("ten-a", b"shop", b"bank"), ("ten-b", b"bank", b"shop")):
            (body,) = bodies[key]
            assert pod in body
            assert other not in body


def test_pages_fail_as_in_one_process(node: AgentNode) -> None:
    node.kubelet.stop()
    assert [status_of(node.ask("ten-a", PAGE)) for _ in range(4)] == [502] * 4
    assert status_of(node.ask("ten-a", "GET /healthz")) == 200


def test_a_port_for_tokens_is_served_by_all_workers(tmp_path: Path) -> None:
    with TokenNode(tmp_path, workers=WORKERS) as tokens:
        token = tokens.issuers["ten-a"].token()
        for _ in range(2 * WORKERS):
            assert status_of(tokens.ask("ten-a", PAGE, token)) == 200
            assert status_of(tokens.ask("ten-b", PAGE, token)) == 401
        refusals = "vcnode_vnagent_token_refusals_total"
        samples = tokens.node.daemon.samples()
        assert sum(count for name, count in samples.items() if name.startswith(refusals)) == 2 * WORKERS


def test_a_rotated_audit_log_is_reopened_by_all(node: AgentNode) -> None:
    with connections(node, "ten-a") as clients:
        assert [ask_log(client) for client in clients] == [200] * CONNECTIONS
        wait_until(lambda: len(audit_lines(node)) == CONNECTIONS, within_s=DEADLINE_S)
        path = node.directory / "audit.jsonl"
        path.rename(path.with_suffix(".1"))
        os.kill(node.daemon.pid, signal.SIGHUP)

        def have_all_reopened() -> bool:
            return [file for pid in serving(node) for _, file in open_files(pid)].count(path) == WORKERS

        wait_until(have_all_reopened, within_s=DEADLINE_S)
        assert [ask_log(client) for client in clients] == [200] * CONNECTIONS
        wait_until(lambda: len(audit_lines(node)) == CONNECTIONS, within_s=DEADLINE_S)
        assert len(audit_lines(node, "audit.1")) == CONNECTIONS


def test_a_renewed_serving_certificate_is_shown_by_all(node: AgentNode) -> None:
    def shown(count: int) -> set[bytes | None]:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(node.client("ten-a")) for _ in range(count)]
            return {client.peer_certificate for client in clients}

    (before,) = shown(2 * WORKERS)
    node.daemon.after_reload(node.write_serving)
    wait_until(partial(lambda: before not in shown(2 * WORKERS)), within_s=DEADLINE_S)
    (after,) = shown(2 * WORKERS)
    assert after != before


def test_a_worker_out_of_descriptors_closes_one(node: AgentNode) -> None:
    """The connection that it cannot take ends; the worker serves on."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for pid in serving(node):
        open_count = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_count + 6, hard))
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            with contextlib.suppress(OSError):
                stack.enter_context(node.client("ten-a"))
    for pid in serving(node):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
    assert len(serving(node)) == WORKERS
    wait_until(lambda: status_of(node.logs("ten-a", "web", "shop")) == 200, within_s=DEADLINE_S)
    assert node.daemon.metric("vcnode_vnagent_workers_ended_total") == 0
