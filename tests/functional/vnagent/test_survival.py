# SPDX-License-Identifier: Apache-2.0
"""Killed agents, absent sources, restarted kubelets: tenants are served, and the status names the cause."""

import contextlib
import json
import time
from pathlib import Path

from devkit.kubelet.replies import Exchange, FakeReply
from devkit.pki import Authority
from tests.cases.client import PeerEnd
from tests.cases.daemon import DaemonError
from tests.functional.vnagent.node import DEADLINE_S, NAME, SPDY, AgentNode, NodeTenant
from tests.functional.vnagent.shop_and_bank import (
    BANK,
    CUT_WITHIN_S,
    EXEC,
    FOLLOW,
    SHOP,
    has_saved,
    many,
    serves,
    status_of,
)
from tests.waiting import wait_until
from vcnode_demo.super_cluster import FakeSuperCluster

# The requirements' time for a restart.
AGAIN_WITHIN_S = 2.0


def serves_log(node: AgentNode, key: str) -> bool:
    """Whether a log is served now. Asks the restarted agent at its new port."""
    with contextlib.suppress(DaemonError, OSError, ValueError):
        node.daemon.port = node.daemon.listen_port()
        reply = node.logs(key, "web", "shop")
        return reply is not None and reply.status == 200 and SHOP.name.encode() in reply.body
    return False


def saved_ages(node: AgentNode) -> dict[str, tuple[float, float]]:
    """Source -> (age in seconds, 1 if it is saved state), from the metrics."""
    samples = node.daemon.samples()
    return {
        name: (
            samples[f'vcnode_vnagent_source_age_seconds{{source="{name}"}}'],
            samples[f'vcnode_vnagent_saved_sources{{source="{name}"}}'],
        )
        for name in ("tenants", "pods")
    }


# ---- kill -9


def _kill_and_serve_again(node: AgentNode, key: str, marker: str, saved: set[str]) -> None:
    """The middle of the two tests below. `saved`: the sources that are away."""
    with (
        many(node, key, FOLLOW, marker, count=50) as follows,
        many(node, key, EXEC, marker, *SPDY, count=50) as tunnels,
    ):
        assert node.daemon.metric("vcnode_vnagent_tunnels") == 50
        node.daemon.kill()
        # Both the tenants' and the kubelet's connections end.
        for client in (*follows, *tunnels):
            assert client.receive_until_end(DEADLINE_S)
            assert client.end in {PeerEnd.EOF, PeerEnd.RESET}
        wait_until(lambda: node.kubelet.connections_open == 0, within_s=DEADLINE_S)
    confirmed_at = {
        name: json.loads((node.directory / "state" / f"{name}.json").read_bytes())["confirmedAt"]
        for name in ("tenants", "pods")
    }
    began = time.monotonic()
    node.daemon.spawn()
    wait_until(
        lambda: serves_log(node, key), within_s=DEADLINE_S, context=lambda: str(node.daemon.log_tail())
    )
    took_s = time.monotonic() - began
    assert took_s < AGAIN_WITHIN_S
    # The metrics show the sources and their age.
    wait_until(node.daemon.is_ready, within_s=DEADLINE_S)
    found = saved_ages(node)
    reported = node.daemon.get("/readyz")[1]
    for name in saved:
        age_s, is_saved = found[name]
        assert is_saved == 1
        assert abs(age_s - (time.time() - confirmed_at[name])) < 2
        assert f"{name}: saved state, age " in reported
    for name in {"tenants", "pods"} - saved:
        assert found[name][1] == 0
        assert f"{name}: ok, age " in reported
    # What saved state lacks may have been created since.
    missing = 503 if "pods" in saved else 404
    assert status_of(node.logs(key, "web", "no-such-pod")) == missing
    with many(node, key, FOLLOW, marker, count=2), many(node, key, EXEC, marker, *SPDY, count=2):
        pass


def test_a_restart_without_the_kubelets_pod_list(tmp_path: Path) -> None:
    with AgentNode(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK]) as node:
        wait_until(lambda: has_saved(node), within_s=DEADLINE_S)

        def without_pods(exchange: Exchange) -> FakeReply | None:
            return FakeReply(500, (), b"") if exchange.path == "/pods" else None

        node.kubelet.script = without_pods
        _kill_and_serve_again(node, "ten-a", SHOP.marker, {"pods"})
        node.kubelet.script = None
        wait_until(lambda: saved_ages(node)["pods"][1] == 0, within_s=DEADLINE_S)
        assert saved_ages(node)["pods"][0] < CUT_WITHIN_S


def test_a_restart_without_the_super_cluster(tmp_path: Path) -> None:
    super_cluster = FakeSuperCluster(NAME)
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
        node = AgentNode(tmp_path / "n", [], [pod], settings)
        node.tenants[key] = NodeTenant(key, authority, leaf)
        with node:
            wait_until(lambda: has_saved(node), within_s=DEADLINE_S)
            assert serves_log(node, key)
            super_cluster.pause()
            _kill_and_serve_again(node, key, pod.marker, {"tenants", "pods"})
            super_cluster.resume()
            wait_until(
                lambda: [is_saved for _, is_saved in saved_ages(node).values()] == [0, 0],
                within_s=2 * DEADLINE_S,
            )
    finally:
        super_cluster.stop()


def test_a_first_start_without_sources_is_not_synced(tmp_path: Path) -> None:
    """Unknown is not no: 503, never 404."""
    node = AgentNode(tmp_path / "n", ["ten-a"], [SHOP])
    node.kubelet.script = lambda exchange: FakeReply(500, (), b"") if exchange.path == "/pods" else None
    node.kubelet.start()
    try:
        node.write_serving()
        node.write_agent_certificate()
        node.write_kubelet_authority()
        node.write_tenant("ten-a")
        node.write_config()
        node.daemon.spawn()

        def try_logs() -> bool:
            with contextlib.suppress(DaemonError, OSError):
                node.daemon.port = node.daemon.listen_port()
                reply = node.logs("ten-a", "web", "shop")
                return reply is not None
            return False

        wait_until(try_logs, within_s=DEADLINE_S, context=lambda: str(node.daemon.log_tail()))
        for namespace, name in (("web", "shop"), ("web", "nothing"), ("kube-system", "etcd")):
            reply = node.logs("ten-a", namespace, name)
            assert reply is not None
            assert (reply.status, reply.values("Retry-After")) == (503, ["1"])
        for path in ("/pods", "/stats/summary", "/metrics/resource"):
            assert status_of(node.ask("ten-a", f"GET {path}")) == 503
        stream = node.ask("ten-a", EXEC, *SPDY)
        assert stream is not None
        assert (stream.status, json.loads(stream.body)["code"]) == (503, 503)
        status, reported = node.daemon.get("/readyz")
        assert (status, "pods: not synced" in reported) == (503, True)
        node.kubelet.script = None
        wait_until(lambda: node.daemon.is_ready() and serves_log(node, "ten-a"), within_s=DEADLINE_S)
        assert status_of(node.logs("ten-a", "web", "nothing")) == 404
    finally:
        node.stop()


# ---- the kubelet


def test_a_restarted_kubelet_is_used_at_once(node: AgentNode) -> None:
    """Pooled connections are dead then; the tenant does not see that."""
    with many(node, "ten-a", FOLLOW, SHOP.marker, count=5) as follows:
        for _ in range(5):
            assert serves(node)
        node.kubelet.restart()
        assert serves(node)
        for client in follows:
            assert client.receive_until_end(DEADLINE_S)  # cut, not ended in good order
            assert not bytes(client.received).endswith(b"0\r\n\r\n")


def test_a_kubelet_that_is_down_is_502(node: AgentNode) -> None:
    node.kubelet.pause()
    reply = node.logs("ten-a", "web", "shop")
    assert reply is not None
    assert reply.status == 502
    assert b"cannot reach the kubelet" in reply.body
    assert node.daemon.is_ready()  # the synced sources stay synced
    node.kubelet.resume()
    wait_until(lambda: serves(node), within_s=DEADLINE_S)
