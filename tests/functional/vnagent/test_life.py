# SPDX-License-Identifier: Apache-2.0
"""From start to end: invalid configuration, the first sync, invalid files, the drain."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devkit.files import replace_file
from tests.cases.client import PeerEnd, SendFailed
from tests.cases.daemon import ROOT
from tests.functional.vnagent.node import DEADLINE_S, SPDY, AgentNode, head, received
from tests.functional.vnagent.shop_and_bank import BANK, SHOP
from tests.waiting import wait_until

EXEC = "POST /exec/web/shop/app?command=cat&input=1&output=1"
# A DER sequence without a certificate in it.
NO_CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n"
FOLLOW = "GET /containerLogs/web/shop/app?follow=true"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AgentNode]:
    with AgentNode(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK], {"drain": {"seconds": 2}}) as node:
        yield node


def run_agent(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vnagent", "--config", str(config), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("arguments", [(), ("--check-config",)])
def test_all_errors_of_a_configuration_are_printed(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    socket = tmp_path / "status.sock"
    document: dict[str, Any] = {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "VnAgentConfiguration",
        "nodeName": "node-1",
        "listen": {"address": "127.0.0.1", "port": 70000},
        "serving": {"certificateFile": str(tmp_path / "no.crt")},
        "kubelet": {"address": "127.0.0.1", "port": "ten", "caFile": "x", "prot": 1},
        "tenants": {"directory": str(tmp_path), "kubeconfigFile": str(tmp_path / "k")},
        "pods": {"source": "nowhere"},
        "status": {"socket": str(socket)},
        "pages": {"maxAgeSeconds": -1},
    }
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    ended = run_agent(config, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    for path in (
        "listen.port",
        "serving.keyFile",
        "kubelet.port",
        "kubelet.prot",
        "kubelet.clientCertificateFile",
        "tenants",
        "pods.source",
        "pages.maxAgeSeconds",
    ):
        assert path in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not socket.exists()


@pytest.mark.parametrize(
    ("has_kubelet", "kubeconfig", "expected"),
    [
        (True, "users: []", "kubelet: give exactly one of kubelet and superApiserver"),
        (False, None, "kubelet: give exactly one of kubelet and superApiserver"),
        (False, "users: []", "current-context '' is not among contexts"),
        (
            False,
            "{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],"
            " clusters: [{name: c, cluster: {server: 'https://10.0.0.1'}}],"
            " users: [{name: u, user: {token: secret}}]}",
            "no certificate-authority: the API server has to be verified; correct the kubeconfig",
        ),
    ],
)
def test_a_super_api_server_is_checked_before_start(
    node: AgentNode, has_kubelet: bool, kubeconfig: str | None, expected: str
) -> None:
    node.daemon.stop()
    document = yaml.safe_load(node.daemon.config.read_text(encoding="utf-8"))
    if not has_kubelet:
        del document["kubelet"]
    if kubeconfig is not None:
        path = node.directory / "super.kubeconfig"
        path.write_text(kubeconfig, encoding="utf-8")
        document["superApiserver"] = {"kubeconfigFile": str(path)}
    node.daemon.config.write_text(yaml.safe_dump(document), encoding="utf-8")
    for arguments in ((), ("--check-config",)):
        ended = run_agent(node.daemon.config, *arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert expected in ended.stderr
        assert len(ended.stderr.splitlines()) == 1
        assert "secret" not in ended.stderr


def test_missing_files_are_reported_before_start(node: AgentNode) -> None:
    node.daemon.stop()
    for name in ("serving.key", "kubelet-ca.crt"):
        (node.directory / name).unlink()
    ended = run_agent(node.daemon.config)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "serving" in ended.stderr
    assert "kubelet.caFile" in ended.stderr


@pytest.mark.parametrize("what", ["leaf", "no certificate", "domain"])
def test_an_invalid_spiffe_authority_is_reported(node: AgentNode, what: str) -> None:
    node.daemon.stop()
    authority = {"leaf": node.tenants["ten-a"].leaf.cert_pem, "domain": node.serving.cert_pem}
    path = node.directory / "spiffe.crt"
    path.write_bytes(authority.get(what, NO_CERTIFICATE))
    domain = "" if what == "domain" else "super.example"
    node.settings["spiffe"] = {"caFile": str(path), "trustDomain": domain}
    node.write_config()
    for arguments in ((), ("--check-config",)):
        ended = run_agent(node.daemon.config, *arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ("spiffe.trustDomain" if what == "domain" else f"spiffe.caFile: {path}") in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("listen", "address", "node-1"),
        ("kubelet", "address", "node-1.example"),
        ("kubelet", "address", "127.0.0.1\r\nX: y"),
        ("kubelet", "serverName", ".node"),
        ("kubelet", "serverName", ""),
        ("status", "address", "0.0.0.0"),  # noqa: S104 - it must be refused
        ("audit", "file", "/"),
        ("status", "socket", "/no/such/directory/status.sock"),
        ("", "stateDirectory", "config.yaml"),
        ("", "nodeName", ""),
    ],
)
def test_impossible_paths_and_names_are_reported_before_start(
    node: AgentNode, section: str, key: str, value: str
) -> None:
    node.daemon.stop()
    document = yaml.safe_load(node.daemon.config.read_text(encoding="utf-8"))
    if key == "address" and section == "status":
        document["status"] = {}
    (document[section] if section else document)[key] = value
    node.daemon.config.write_text(yaml.safe_dump(document), encoding="utf-8")
    for arguments in ((), ("--check-config",)):
        ended = run_agent(node.daemon.config, *arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert f"{section}.{key}".strip(".") + ": " in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_check_config_does_not_start_the_daemon(node: AgentNode) -> None:
    node.daemon.stop()
    before = sorted(p.name for p in node.directory.iterdir())
    ended = run_agent(node.daemon.config, "--check-config")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert sorted(p.name for p in node.directory.iterdir()) == before


def test_an_invalid_tenant_file_keeps_the_last_good_state(node: AgentNode) -> None:
    path = node.tenants_directory / "ten-a.yaml"
    good = path.read_text(encoding="utf-8")
    for bad in (
        "kind: [broken",
        "apiVersion: vcnode.io/v1alpha1\nkind: Tenant\n",
        good.replace("BEGIN", "BEGUN"),
    ):
        node.daemon.after_reload(lambda bad=bad: replace_file(path, bad), result="error")  # type: ignore[misc] # a default binds the loop's variable
        for key, namespace, name in (("ten-a", "web", "shop"), ("ten-b", "web", "bank")):
            reply = node.logs(key, namespace, name)
            assert reply is not None
            assert reply.status == 200
        reported = json.dumps(node.daemon.status())
        assert "ten-a" in json.dumps(node.daemon.status()["badTenants"])
        assert "PRIVATE KEY" not in reported
    assert "ten-a.yaml" in node.daemon.log_tail(20_000)
    node.daemon.after_reload(lambda: replace_file(path, good))
    assert node.daemon.status()["badTenants"] == []
    assert node.daemon.is_ready()
    new = node.tenants_directory / "ten-c.yaml"
    node.daemon.after_reload(lambda: replace_file(new, "nonsense"), result="error")
    reply = node.logs("ten-b", "web", "bank")
    assert reply is not None
    assert reply.status == 200


def is_turned_away(node: AgentNode) -> bool:
    """Whether a new connection fails: not accepted, ended at once, or refused with 503."""
    try:
        reply = node.ask("ten-a", "GET /healthz")
    except (ConnectionError, SendFailed):
        return True
    return reply is None or reply.status == 503


def test_the_drain_ends_streams_after_its_time(node: AgentNode) -> None:
    with node.client("ten-a") as tunnel, node.client("ten-a") as follow, node.client("ten-a") as idle:
        tunnel.send(head(EXEC, *SPDY))
        follow.send(head(FOLLOW))
        idle.send(head("GET /healthz"))
        assert received(tunnel, SHOP.marker.encode())
        assert received(follow, SHOP.marker.encode())
        assert received(idle, b"\r\n\r\nok")
        begin = time.monotonic()
        node.daemon.signal(signal.SIGTERM)
        assert idle.receive_until_end(1.5)  # it carries nothing that is worth waiting for
        tunnel.send(b"still here")
        assert received(tunnel, b"still here")
        node.kubelet.append_log(SHOP.namespace, SHOP.name, "app", "one more line")
        assert received(follow, b"one more line")
        assert not node.daemon.is_ready()
        assert is_turned_away(node)
        assert tunnel.receive_until_end(DEADLINE_S)
        assert follow.receive_until_end(DEADLINE_S)
        assert time.monotonic() - begin >= 1.5
    assert node.daemon.wait(DEADLINE_S) == 0
    wait_until(
        lambda: all(e.ended_s is not None for e in node.kubelet.requests("/exec")), within_s=DEADLINE_S
    )


def test_the_drain_ends_with_the_last_stream(node: AgentNode) -> None:
    with node.client("ten-a") as tunnel:
        tunnel.send(head(EXEC, *SPDY))
        assert received(tunnel, SHOP.marker.encode())
        node.daemon.signal(signal.SIGTERM)
        assert not tunnel.receive_until_end(0.3)
        begin = time.monotonic()
    assert node.daemon.wait(DEADLINE_S) == 0
    assert time.monotonic() - begin < 1.5


def test_without_streams_the_drain_ends_at_once(node: AgentNode) -> None:
    with node.client("ten-a") as idle:
        idle.send(head("GET /healthz"))
        assert received(idle, b"\r\n\r\nok")
        begin = time.monotonic()
        node.daemon.signal(signal.SIGTERM)
        assert node.daemon.wait(DEADLINE_S) == 0
        assert time.monotonic() - begin < 1.5
        assert idle.receive_until_end(1)
        assert idle.end is PeerEnd.CLOSE_NOTIFY


def test_a_life_has_no_stdout_and_no_trace(node: AgentNode) -> None:
    node.logs("ten-a", "web", "shop")
    node.daemon.signal(signal.SIGHUP)
    node.daemon.stop()
    lines = node.daemon.log.read_text(encoding="utf-8").splitlines()
    assert lines
    assert all(json.loads(line)["level"] in ("debug", "info", "warning") for line in lines)
