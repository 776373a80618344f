# SPDX-License-Identifier: Apache-2.0
"""A source that loses its tenants removes none of them; a confirmed removal does."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cases.client import CaseClient, SendFailed
from tests.cases.daemon import ROOT
from tests.functional.vnagent.node import DEADLINE_S, SPDY, AgentNode, head, received
from tests.functional.vnagent.shop_and_bank import SHOP
from tests.waiting import wait_until

EXEC = "POST /exec/web/shop/app?command=cat&input=1&output=1"
# The agent polls files each second. So many polls must not make a missing directory look current.
POLLS_S = 3.0


def vcnode(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vcnode", *(str(each) for each in arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def is_served(node: AgentNode, key: str, name: str) -> bool:
    try:
        reply = node.logs(key, "web", name)
    except (OSError, SendFailed):
        return False
    return reply is not None and reply.status == 200


def retained(node: AgentNode) -> list[str]:
    found: dict[str, list[str]] = node.daemon.status()["sources"]["tenants"].get("retained", {"tenants": []})
    return found["tenants"]


def lose_all(node: AgentNode) -> None:
    for path in node.tenants_directory.iterdir():
        path.unlink()
    wait_until(lambda: retained(node) == ["ten-a", "ten-b"], within_s=DEADLINE_S)


def echoes(stream: CaseClient, word: bytes) -> bool:
    stream.send(word)
    return received(stream, word)


def has_ended(stream: CaseClient) -> bool:
    stream.receive(0.1)
    return stream.end is not None


def test_an_emptied_directory_retains_tenants_until_release(node: AgentNode) -> None:
    with node.client("ten-a") as stream:
        stream.send(head(EXEC, *SPDY))
        assert received(stream, b"101 Switching Protocols")
        lose_all(node)
        assert echoes(stream, b"still here")
        assert (is_served(node, "ten-a", "shop"), is_served(node, "ten-b", "bank")) == (True, True)
        code, reported = node.daemon.get("/readyz")
        assert code == 200
        assert "tenants: degraded" in reported
        assert "2 tenants are missing from the source and retained for" in reported
        assert node.daemon.metric("vcnode_vnagent_retained_tenants") == 2
        assert node.daemon.metric("vcnode_vnagent_relists_distrusted_total") == 1
        # logrotate sends it each night.
        node.daemon.after_reload(lambda: node.daemon.signal(signal.SIGHUP))
        assert retained(node) == ["ten-a", "ten-b"]
        shown = vcnode("tenant", "release", "--socket", node.daemon.socket)
        assert (shown.returncode, shown.stdout.count("retained, missing from its source")) == (1, 2)
        assert echoes(stream, b"still here too")
        status = vcnode("status", "--socket", node.daemon.socket)
        assert "RETAINED" in status.stdout
        released = vcnode("tenant", "release", "--socket", node.daemon.socket, "--yes")
        assert (released.returncode, released.stderr) == (0, "")
        wait_until(lambda: has_ended(stream), within_s=DEADLINE_S)
    assert node.daemon.status()["tenants"] == []
    assert node.daemon.metric("vcnode_vnagent_retained_tenants") == 0
    again = vcnode("tenant", "release", "--socket", node.daemon.socket, "--yes")
    assert (again.returncode, again.stdout) == (0, "no tenant is retained\n")


def test_a_missing_directory_retains_tenants_and_ages(node: AgentNode) -> None:
    elsewhere = node.directory / "elsewhere"
    node.tenants_directory.rename(elsewhere)

    def reported() -> str:
        return node.daemon.get("/readyz")[1].splitlines()[0]

    def source() -> dict[str, Any]:
        found: dict[str, Any] = node.daemon.status()["sources"]["tenants"]
        return found

    wait_until(lambda: reported().startswith("tenants: stale, age "), within_s=DEADLINE_S)
    wait_until(lambda: source()["ageSeconds"] > POLLS_S, within_s=DEADLINE_S)
    assert (
        source()["failure"]["message"]
        == f"tenants.directory: {node.tenants_directory}: No such file or directory"
    )
    assert is_served(node, "ten-a", "shop")
    # Also over a restart: the saved state is served, and /readyz has the reason.
    node.daemon.stop()
    node.daemon.start()
    assert "tenants: saved state" in reported()
    assert "No such file or directory" in reported()
    assert is_served(node, "ten-a", "shop")
    elsewhere.rename(node.tenants_directory)
    wait_until(lambda: reported().startswith("tenants: ok, age "), within_s=DEADLINE_S)


def test_a_missing_pod_list_ages(tmp_path: Path) -> None:
    file = tmp_path / "pods.json"
    settings = {"pods": {"source": "file", "file": str(file)}}
    node = AgentNode(tmp_path / "n", ["ten-a"], [SHOP], settings)
    node.write_pod_file(file)
    with node:
        assert is_served(node, "ten-a", "shop")
        file.unlink()
        wait_until(lambda: "pods: stale" in node.daemon.get("/readyz")[1], within_s=DEADLINE_S)
        assert f"{file}: no such file" in node.daemon.get("/readyz")[1]
        assert is_served(node, "ten-a", "shop")


def test_a_removed_tenants_series_end(node: AgentNode) -> None:
    """Once nothing of it is open, with the next change of tenants. The number of series is bounded."""
    assert is_served(node, "ten-a", "shop")
    assert is_served(node, "ten-b", "bank")

    def tenants_with_series() -> set[str]:
        names = node.daemon.samples()
        return {key for key in node.tenants if any(f'tenant="{key}"' in name for name in names)}

    assert tenants_with_series() == {"ten-a", "ten-b"}
    own = node.tenants_directory / "ten-b.yaml"
    own.with_name("ten-b.yaml.removed").touch()
    node.daemon.after_reload(own.unlink)
    wait_until(lambda: node.daemon.status()["connections"] == 0, within_s=DEADLINE_S)
    tenant = node.tenants["ten-a"]
    node.daemon.after_reload(lambda: node.write_tenant("ten-a", tenant.leaf, tenant.authority.issue("other")))
    wait_until(lambda: tenants_with_series() == {"ten-a"}, within_s=DEADLINE_S)
