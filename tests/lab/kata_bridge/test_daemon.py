# SPDX-License-Identifier: Apache-2.0
"""The real daemon, with namespaces as guests, described by files."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bridge_api.messages import ResultCode
from devkit.kata.sample_rulesets import sample
from ruleset.delta import difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, Protocol, ServiceRules
from ruleset.render.iptables import render
from tests.lab.kata_bridge.daemon import DEADLINE_S, ROOT, LabKataBridge, push, running
from tests.lab.namespaces import Lab, LabNamespace


def to(address: str, port: int) -> Ruleset:
    """10.96.0.1:80 leads there."""
    target = EndpointSet("n/s:p", Protocol.TCP, False, (Endpoint(address, port),))
    services = (ServiceRules("n/s", (Frontend("10.96.0.1", 80, Protocol.TCP, "n/s:p", target),)),)
    documents: tuple[Document, ...] = (render(GuestRules(Family.IPV4, services, ("10.96.0.0/16",))),)
    return make_ruleset(1, documents)


SERVER = """
import socket
server = socket.create_server(("10.9.0.2", 8080))
print("up", flush=True)
while True:
    server.accept()[0].close()
"""
CLIENT = 'import socket; socket.create_connection(("10.96.0.1", 80), 3)'


def connects(guest: LabNamespace) -> bool:
    tried = subprocess.run(guest.command(sys.executable, "-c", CLIENT), capture_output=True, check=False)
    return tried.returncode == 0


def test_flushed_service_is_restored(lab: Lab, tmp_path: Path) -> None:
    guest, backend = lab.namespace("guest"), lab.namespace("backend")
    lab.link(guest, backend, ["10.9.0.1/24"], ["10.9.0.2/24"])
    server = lab.start(backend, sys.executable, "-c", SERVER)
    assert server.stdout is not None
    assert server.stdout.readline() == "up\n"
    with running(tmp_path) as daemon:
        daemon.guest("web", guest)
        daemon.start()
        assert not connects(guest)
        (results,) = push(daemon, ["web"], to("10.9.0.2", 8080))
        assert results["web"].code is ResultCode.APPLIED
        assert connects(guest)
        guest.run("iptables", "-t", "nat", "-F")
        guest.run("nft", "flush", "ruleset")
        daemon.until(lambda: connects(guest))
        daemon.until(lambda: daemon.status()["web"]["state"] == "current")
        assert daemon.log().count("rules of a guest drifted; applying them again") == 1
        assert daemon.stop() == 0
        assert connects(guest), "the rules stay when the daemon stops"


def test_restart_applies_no_ruleset_again(lab: Lab, tmp_path: Path) -> None:
    names = [f"g{number}" for number in range(4)]
    with running(tmp_path) as daemon:
        for name in names:
            daemon.guest(name, lab.namespace(name))
        daemon.start()
        first, second = sample(1), sample(2, 5)
        delta = difference(first, second)
        applied, changed = push(daemon, names, first, delta)
        assert {result.code for result in (*applied.values(), *changed.values())} == {ResultCode.APPLIED}
        assert daemon.log().count('"ruleset applied"') == 8
        assert daemon.log().count('"kind":"delta"') == 4
        daemon.stop(signal.SIGKILL)
        daemon.start()
        # All four guests must be found again: a missing one would prove nothing.
        expected_digests = dict.fromkeys(names, second.digest)
        daemon.until(
            lambda: {name: guest["digest"] for name, guest in daemon.status().items()} == expected_digests
        )
        assert {guest["generation"] for guest in daemon.status().values()} == {2}
        (again,) = push(daemon, names, second)
        assert {result.code for result in again.values()} == {ResultCode.UNCHANGED}
        assert daemon.log().count('"ruleset applied"') == 8
        assert daemon.stop() == 0


def test_invalid_guests_are_named(lab: Lab, tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        daemon.start()
        assert daemon.status() == {}
        daemon.file("gone", netns="/run/netns/never-there")
        daemon.file("bad", netns="/proc/self/ns/net")
        daemon.guest("good", lab.namespace("good"))
        daemon.until(lambda: len(daemon.status()) == 3 and daemon.status()["good"]["channel"] == "netns")
        (results,) = push(daemon, ["gone", "bad", "good", "unknown"], sample(1))
        assert {name: result.code for name, result in results.items()} == {
            "gone": ResultCode.UNREACHABLE,
            "bad": ResultCode.NOT_INJECTABLE,
            "good": ResultCode.APPLIED,
            "unknown": ResultCode.GONE,
        }
        assert "No such file or directory" in daemon.status()["gone"]["message"]
        assert "the host's own network" in daemon.status()["bad"]["message"]
        tool = subprocess.run(
            [sys.executable, "-m", "vcnode", "guests", "--socket", str(tmp_path / "status.sock")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert (tool.returncode, tool.stderr) == (1, "")
        assert "notInjectable" in tool.stdout
        (tmp_path / "guests" / "good.yaml").unlink()
        daemon.until(lambda: "good" not in daemon.status())


def start_agent(lab: Lab, daemon: LabKataBridge, guest: LabNamespace, name: str) -> "subprocess.Popen[str]":
    """Our agent in the guest, with the certificate that the daemon made for it."""
    return lab.start(
        guest,
        sys.executable,
        "-m",
        "guest_agent",
        "--node",
        f"unix:{daemon.directory}/agents.sock",
        "--credentials",
        str(daemon.directory / "state" / "sandboxes" / name),
        "--state",
        str(daemon.directory / f"agent-{name}"),
    )


def test_attached_agent_is_selected_at_once(lab: Lab, tmp_path: Path) -> None:
    guest = lab.namespace("web")
    with running(tmp_path, agent={"socket": str(tmp_path / "agents.sock")}) as daemon:
        daemon.file("web", netns=str(guest.path), channels=["agent", "netns"])
        daemon.start()
        (results,) = push(daemon, ["web"], sample(1))
        assert results["web"].code is ResultCode.APPLIED
        assert daemon.status()["web"]["channel"] == "netns"
        agent = start_agent(lab, daemon, guest, "web")
        daemon.until(lambda: daemon.status()["web"]["channel"] == "agent")
        daemon.until(lambda: daemon.status()["web"]["state"] == "current")
        assert daemon.log().count('"ruleset applied"') == 1
        (results,) = push(daemon, ["web"], sample(2, 4))
        assert results["web"].code is ResultCode.APPLIED
        guest.run("nft", "flush", "ruleset")
        guest.run("iptables", "-t", "nat", "-F")
        daemon.until(lambda: '"drift of a guest repaired"' in daemon.log())
        agent.kill()
        daemon.until(lambda: daemon.status()["web"]["channel"] == "netns")
        daemon.until(lambda: daemon.status()["web"]["state"] == "current")


def test_certificate_ends_with_its_sandbox(lab: Lab, tmp_path: Path) -> None:
    guest = lab.namespace("web")
    with running(tmp_path, agent={"socket": str(tmp_path / "agents.sock")}) as daemon:
        daemon.file("web", channels=["agent"])
        daemon.start()
        start_agent(lab, daemon, guest, "web")
        daemon.until(lambda: daemon.status()["web"]["channel"] == "agent")
        daemon.stop()
        (tmp_path / "guests" / "web.yaml").unlink()
        assert (tmp_path / "state" / "sandboxes" / "web").is_dir()
        daemon.start()
        # Certificates of sandboxes that ended while the daemon was away are revoked after the first list.
        daemon.until(lambda: not (tmp_path / "state" / "sandboxes" / "web").exists())


@pytest.mark.slow
def test_thirty_guests_get_rulesets_at_once(lab: Lab, tmp_path: Path) -> None:
    names = [f"g{number}" for number in range(30)]
    with running(tmp_path) as daemon:
        for name in names:
            daemon.guest(name, lab.namespace(name))
        daemon.start()
        daemon.until(
            lambda: {name for name, guest in daemon.status().items() if guest["channel"]} == set(names)
        )
        (results,) = push(daemon, names, sample(1, services=100))
        assert {result.code for result in results.values()} == {ResultCode.APPLIED}
