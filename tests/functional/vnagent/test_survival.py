# SPDX-License-Identifier: Apache-2.0
"""What a node lives through: killed agents, absent sources, restarted kubelets, new certificates,
full disks. Each is survived, and each says so."""

import contextlib
import json
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemonkit.testing.kubelet_replies import Exchange, Reply
from daemonkit.testing.pki import Authority
from tests.cases.client import Client, End
from tests.cases.daemon import DaemonError, wait_for
from tests.cases.world import replace_file
from tests.functional.vnagent.node import (
    DEADLINE_S,
    NAME,
    SPDY,
    Node,
    Tenant,
    head,
    received,
    reply_of,
    tenant_pod,
)
from vcnode.demo.super_cluster import SuperCluster

FOLLOW = "GET /containerLogs/web/shop/app?follow=true"
EXEC = "POST /exec/web/shop/app?command=cat&output=1"
SHOP = tenant_pod("ten-a", "web", "shop")
BANK = tenant_pod("ten-b", "web", "bank")
# What is asked of a restart by the requirements.
AGAIN_WITHIN_S = 2.0
# A right that was taken away is gone from live connections within this time.
CUT_WITHIN_S = 5.0


@contextlib.contextmanager
def many(node: Node, key: str, line: str, marker: str, *headers: str, count: int) -> Iterator[list[Client]]:
    """So many streams of one kind, each of which has brought its first bytes."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(node.client(key))
            client.send(head(line, *headers))
            clients.append(client)
        for client in clients:
            assert received(client, marker.encode()), client.received
        yield clients


def has_saved(node: Node, *names: str) -> bool:
    return all((node.directory / "state" / name).exists() for name in names)


def asked_once(node: Node, key: str) -> bool:
    """Whether a log is served now. False while there is no port, no answer or another one."""
    with contextlib.suppress(DaemonError, OSError, ValueError):
        node.daemon.port = node.daemon.listen_port()
        reply = node.logs(key, "web", "shop")
        return reply is not None and reply.status == 200 and SHOP.name.encode() in reply.body
    return False


def saved_ages(node: Node) -> dict[str, tuple[float, float]]:
    """Source -> (age in seconds, 1 if it is saved state), as the metrics say."""
    samples = node.daemon.samples()
    return {
        name: (
            samples[f'vcnode_source_age_seconds{{source="{name}"}}'],
            samples[f'vcnode_source_is_saved_state{{source="{name}"}}'],
        )
        for name in ("tenants", "pods")
    }


# ---- kill -9


def _kill_and_serve_again(node: Node, key: str, marker: str, saved: set[str]) -> None:
    """The middle of the two tests below. `saved`: the sources that are away."""
    with (
        many(node, key, FOLLOW, marker, count=50) as follows,
        many(node, key, EXEC, marker, *SPDY, count=50) as tunnels,
    ):
        assert node.daemon.samples()["vcnode_tunnels"] == 50
        node.daemon.kill()
        # Nobody is left hanging: neither the tenants nor the kubelet.
        for client in (*follows, *tunnels):
            assert client.receive_until_end(DEADLINE_S)
            assert client.end in {End.EOF, End.RESET}
        assert wait_for(lambda: node.kubelet.connections_open == 0, DEADLINE_S)
    confirmed_at = {
        name: json.loads((node.directory / "state" / f"{name}.json").read_bytes())["confirmedAt"]
        for name in ("tenants", "pods")
    }
    began = time.monotonic()
    node.daemon.spawn()
    assert wait_for(lambda: asked_once(node, key), DEADLINE_S), node.daemon.log_tail()
    took_s = time.monotonic() - began
    assert took_s < AGAIN_WITHIN_S
    # It says what it serves from, and how old that is.
    assert wait_for(node.daemon.is_ready, DEADLINE_S)
    found = saved_ages(node)
    said = node.daemon.get("/readyz")[1]
    for name in saved:
        age_s, is_saved = found[name]
        assert is_saved == 1
        assert abs(age_s - (time.time() - confirmed_at[name])) < 2
        assert f"{name}: saved state, age " in said
    for name in {"tenants", "pods"} - saved:
        assert found[name][1] == 0
        assert f"{name}: ok, age " in said
    reply = node.logs(key, "web", "no-such-pod")
    assert reply is not None
    assert reply.status == 404
    with many(node, key, FOLLOW, marker, count=2), many(node, key, EXEC, marker, *SPDY, count=2):
        pass


def test_killed_while_the_kubelets_list_of_pods_is_away(tmp_path: Path) -> None:
    with Node(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK]) as node:
        assert wait_for(lambda: has_saved(node, "tenants.json", "pods.json"), DEADLINE_S)

        def without_pods(exchange: Exchange) -> Reply | None:
            return Reply(500, (), b"") if exchange.path == "/pods" else None

        node.kubelet.script = without_pods
        _kill_and_serve_again(node, "ten-a", SHOP.marker, {"pods"})
        node.kubelet.script = None
        assert wait_for(lambda: saved_ages(node)["pods"][1] == 0, DEADLINE_S)
        assert saved_ages(node)["pods"][0] < CUT_WITHIN_S


def test_killed_while_the_super_cluster_is_away(tmp_path: Path) -> None:
    super_cluster = SuperCluster(NAME)
    super_cluster.start()
    try:
        authority = Authority.create("kubernetes")
        leaf, metrics = authority.issue("apiserver"), authority.issue("metrics")
        key = super_cluster.add_tenant("a", authority, leaf, metrics)
        pod = super_cluster.add_tenant_pod("a", key, "web", "shop", "t-1")
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(super_cluster.kubeconfig("vn-agent"), encoding="utf-8")
        settings = {
            "tenants": {"kubeconfigFile": str(kubeconfig)},
            "pods": {"source": "superCluster"},
        }
        node = Node(tmp_path / "n", [], [pod], settings)
        node.tenants[key] = Tenant(key, authority, leaf)
        with node:
            assert wait_for(lambda: has_saved(node, "tenants.json", "pods.json"), DEADLINE_S)
            assert asked_once(node, key)
            super_cluster.pause()
            _kill_and_serve_again(node, key, pod.marker, {"tenants", "pods"})
            super_cluster.resume()
            assert wait_for(
                lambda: [is_saved for _, is_saved in saved_ages(node).values()] == [0, 0], 2 * DEADLINE_S
            )
    finally:
        super_cluster.stop()


def test_a_first_start_without_sources_says_that_it_does_not_know(tmp_path: Path) -> None:
    """Unknown is not no: 503, never 404."""
    node = Node(tmp_path / "n", ["ten-a"], [SHOP])
    node.kubelet.script = lambda exchange: Reply(500, (), b"") if exchange.path == "/pods" else None
    node.kubelet.start()
    try:
        node.write_serving()
        node.write_agent_certificate()
        node.write_kubelet_authority()
        node.write_tenant("ten-a")
        node.write_config()
        node.daemon.spawn()

        def is_listening() -> bool:
            with contextlib.suppress(DaemonError, OSError):
                node.daemon.port = node.daemon.listen_port()
                reply = node.logs("ten-a", "web", "shop")
                return reply is not None
            return False

        assert wait_for(is_listening, DEADLINE_S), node.daemon.log_tail()
        for namespace, name in (("web", "shop"), ("web", "nothing"), ("kube-system", "etcd")):
            reply = node.logs("ten-a", namespace, name)
            assert reply is not None
            assert (reply.status, reply.values("Retry-After")) == (503, ["1"])
        for path in ("/pods", "/stats/summary", "/metrics/resource"):
            reply = node.ask("ten-a", f"GET {path}")
            assert reply is not None
            assert reply.status == 503
        status, said = node.daemon.get("/readyz")
        assert (status, "pods: not heard yet" in said) == (503, True)
        node.kubelet.script = None
        assert wait_for(lambda: node.daemon.is_ready() and asked_once(node, "ten-a"), DEADLINE_S)
    finally:
        node.stop()


# ---- the kubelet


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK]) as running:
        yield running


def serves(node: Node) -> bool:
    """A log and a stream, each on a new connection."""
    reply = node.logs("ten-a", "web", "shop")
    with node.client("ten-a") as client:
        client.send(head(EXEC, *SPDY))
        return reply is not None and reply.status == 200 and received(client, SHOP.marker.encode(), 2.0)


def test_a_restarted_kubelet_is_served_from_at_once(node: Node) -> None:
    """Pooled connections are dead then; the tenant does not see that."""
    with many(node, "ten-a", FOLLOW, SHOP.marker, count=5) as follows:
        for _ in range(5):
            assert serves(node)
        node.kubelet.restart()
        assert serves(node)
        for client in follows:
            assert client.receive_until_end(DEADLINE_S)  # cut, not ended in good order
            assert not bytes(client.received).endswith(b"0\r\n\r\n")


def test_a_kubelet_that_is_down_is_said_to_be_down(node: Node) -> None:
    node.kubelet.pause()
    reply = node.logs("ten-a", "web", "shop")
    assert reply is not None
    assert reply.status == 502
    assert b"cannot reach the kubelet" in reply.body
    assert node.daemon.is_ready()  # what is known is known
    node.kubelet.resume()
    assert wait_for(lambda: serves(node), DEADLINE_S)


# ---- rotation


def test_the_agents_serving_certificate_is_replaced_under_live_streams(node: Node) -> None:
    with (
        many(node, "ten-a", FOLLOW, SHOP.marker, count=3) as follows,
        many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=3) as tunnels,
    ):
        before = node.context("ten-a")
        node.serving = Authority.create("agent-serving")
        node.daemon.after_reload(node.write_serving)
        # Who trusts the new authority alone gets in, who trusts the old one alone does not.
        node.forget_contexts()
        assert serves(node)
        with Client(("127.0.0.1", node.daemon.port), before, sni=NAME) as client:
            assert not client.handshake()
        node.kubelet.append_log(SHOP.namespace, SHOP.name, "app", "a line after the rotation")
        for client in follows:
            assert received(client, b"a line after the rotation")
        for client in tunnels:
            client.send(b"echo after the rotation")
            assert received(client, b"echo after the rotation")


def test_a_serving_certificate_that_cannot_be_used_changes_nothing(node: Node) -> None:
    """A key of another certificate, then a file cut in half, then a good pair."""
    other = node.serving.issue(NAME, sans_dns=[NAME])
    key_file, certificate_file = node.directory / "serving.key", node.directory / "serving.crt"
    good = certificate_file.read_text(encoding="ascii")
    node.daemon.after_reload(lambda: replace_file(key_file, other.key_pem.decode()), result="error")
    assert serves(node)
    node.daemon.after_reload(lambda: replace_file(certificate_file, good[:200]), result="error")
    assert serves(node)
    node.daemon.after_reload(node.write_serving)
    assert serves(node)


def test_the_agents_certificate_for_the_kubelet_is_replaced(node: Node) -> None:
    with many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=2) as tunnels:
        node.daemon.after_reload(node.write_agent_certificate)
        for client in tunnels:
            client.send(b"still there")
            assert received(client, b"still there")
    # The kubelet goes over to another authority for its clients: the old certificate is refused.
    node.agent_clients = Authority.create("agent-clients")
    node.kubelet.restart(tls=node.kubelet_tls())
    reply = node.logs("ten-a", "web", "shop")
    assert reply is not None
    assert reply.status == 502
    node.daemon.after_reload(node.write_agent_certificate)
    assert serves(node)


def test_the_kubelets_serving_certificate_is_replaced(node: Node) -> None:
    node.kubelet.restart(tls=node.kubelet_tls())  # the same authority: nothing to do
    assert serves(node)
    node.kubelet_authority = Authority.create("kubelet-serving")
    node.kubelet.restart(tls=node.kubelet_tls())
    reply = node.logs("ten-a", "web", "shop")
    assert reply is not None
    assert reply.status == 502
    assert b"cannot verify the kubelet" in reply.body
    node.daemon.after_reload(node.write_kubelet_authority)
    assert serves(node)


def test_a_tenants_leaf_is_replaced_with_both_registered_for_a_while(node: Node) -> None:
    tenant = node.tenants["ten-a"]
    new = tenant.authority.issue("kube-apiserver-kubelet-client")
    reply = node.ask("ten-a", "GET /healthz", leaf=new)
    assert reply is not None
    assert reply.status == 403
    node.daemon.after_reload(lambda: node.write_tenant("ten-a", tenant.leaf, new))
    for leaf in (tenant.leaf, new):
        reply = node.ask("ten-a", "GET /healthz", leaf=leaf)
        assert reply is not None
        assert reply.status == 200
    with (
        many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=2) as tunnels,
        many(node, "ten-a", FOLLOW, SHOP.marker, count=2) as follows,
        many(node, "ten-b", EXEC.replace("shop", "bank"), BANK.marker, *SPDY, count=1) as others,
        node.client("ten-a", new) as newer,
    ):
        newer.send(head(EXEC, *SPDY))
        assert received(newer, SHOP.marker.encode())
        began = time.monotonic()
        node.write_tenant("ten-a", new)
        for client in (*tunnels, *follows):
            assert client.receive_until_end(CUT_WITHIN_S)
        assert time.monotonic() - began < CUT_WITHIN_S
        for client in (*others, newer):
            client.send(b"still there")
            assert received(client, b"still there")
    reply = node.ask("ten-a", "GET /healthz")
    assert reply is not None
    assert reply.status == 403


def test_a_removed_tenant_loses_its_live_connections(node: Node) -> None:
    with (
        many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=2) as tunnels,
        many(node, "ten-a", FOLLOW, SHOP.marker, count=2) as follows,
        many(node, "ten-b", EXEC.replace("shop", "bank"), BANK.marker, *SPDY, count=1) as others,
        node.client("ten-a") as idle,
    ):
        idle.send(head("GET /healthz"))
        assert reply_of(idle) is not None
        (node.tenants_directory / "ten-a.yaml").unlink()
        for client in (*tunnels, *follows, idle):
            assert client.receive_until_end(CUT_WITHIN_S)
        others[0].send(b"still there")
        assert received(others[0], b"still there")
    assert wait_for(lambda: node.kubelet.requests("/exec/ten-a")[-1].ended_s is not None, DEADLINE_S)
    with node.client("ten-a") as client:
        client.send(head("GET /healthz"))
        assert client.receive_until_end(DEADLINE_S)
        assert client.received == b""  # its authority is no longer known: no reply at all


# ---- full disks


def test_an_audit_log_on_a_full_disk_is_survived_and_said_once(tmp_path: Path) -> None:
    settings = {"audit": {"file": "/dev/full"}}
    with Node(tmp_path / "n", ["ten-a"], [SHOP], settings) as node:
        for _ in range(30):
            assert serves(node)
        assert node.daemon.metric("vcnode_audit_lost_total") == 0  # they wait, for a while
        assert wait_for(lambda: "audit log cannot be written" in node.daemon.log_tail(50_000), DEADLINE_S)
        assert node.daemon.log_tail(50_000).count("audit log cannot be written") == 1
        # A megabyte waits; what does not fit is counted, and nobody is refused for it.
        with node.client("ten-a") as client:
            for _ in range(60):
                client.received.clear()
                client.send(head("GET /healthz") * 100)
                while client.received.count(b"\r\n\r\nok") < 100:
                    assert client.receive(DEADLINE_S)
        assert node.daemon.metric("vcnode_audit_lost_total") > 0
        assert serves(node)
        node.daemon.stop()
        assert node.daemon.exit_code == 0


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("a file system of its own needs root")
    path = tmp_path / "tiny"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(path)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount: {done.stderr.decode(errors='replace').strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_state_and_audit_on_a_full_disk(tmp_path: Path, tiny_disk: Path) -> None:
    """Served throughout; whole again when there is room, with no line torn and none doubled."""
    audit = tiny_disk / "audit.jsonl"
    settings = {"audit": {"file": str(audit)}, "stateDirectory": str(tiny_disk / "state")}
    with Node(tmp_path / "n", ["ten-a"], [SHOP], settings) as node:
        pods_file = tiny_disk / "state" / "pods.json"
        assert wait_for(pods_file.exists, DEADLINE_S)
        saved = pods_file.read_bytes()
        filler = tiny_disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        node.set_pods(SHOP, tenant_pod("ten-a", "web", "cart"))
        for _ in range(40):
            assert serves(node)
        assert wait_for(lambda: node.daemon.metric("vcnode_state_errors_total") > 0, DEADLINE_S)
        assert pods_file.read_bytes() == saved  # the old one, whole
        assert node.daemon.is_ready()
        filler.unlink()
        assert wait_for(lambda: b'"cart"' in pods_file.read_bytes(), DEADLINE_S)
        expected = 2 * 40
        assert wait_for(lambda: audit.read_bytes().count(b"\n") >= expected, DEADLINE_S)
        lines = audit.read_text(encoding="utf-8").splitlines()
        ids = [json.loads(line)["requestId"] for line in lines]
        assert len(ids) == len(set(ids)) == expected
        assert node.daemon.metric("vcnode_audit_lost_total") == 0
        assert [path.name for path in (tiny_disk / "state").iterdir() if path.name.startswith(".")] == []


# ---- no descriptor left


def test_a_dial_without_a_free_descriptor_is_answered(node: Node) -> None:
    """502 and not silence, and all is well once there are descriptors again."""
    limits = resource.prlimit(node.daemon.pid, resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(node.client("ten-a")) for _ in range(8)]
        for client in clients:
            client.send(head("GET /healthz"))
            assert reply_of(client) is not None
            client.received.clear()
        numbers = [int(path.name) for path in Path(f"/proc/{node.daemon.pid}/fd").iterdir()]
        free = set(range(max(numbers) + 1)) - set(numbers)
        assert len(free) < 4
        resource.prlimit(node.daemon.pid, resource.RLIMIT_NOFILE, (max(numbers) + 1, limits[1]))
        statuses = []
        for client in clients:
            client.send(head(FOLLOW))
            assert received(client, b"\r\n\r\n")
            statuses.append(bytes(client.received[9:12]))
        # The first ones found a connection in the pool, or a number that was free.
        assert statuses == sorted(statuses)
        assert statuses[-1] == b"502"
        resource.prlimit(node.daemon.pid, resource.RLIMIT_NOFILE, limits)
        assert wait_for(lambda: serves(node), DEADLINE_S)
    assert wait_for(lambda: node.daemon.samples()["vcnode_kubelet_connections"] <= 3, DEADLINE_S)
