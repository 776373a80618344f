# SPDX-License-Identifier: Apache-2.0
"""`vcnode explain` as a process, between a real kubeproxy-ext and a fake kata-bridge."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from ruleset.document import make_ruleset
from tests.functional.daemon_node import running
from tests.functional.kubeproxy_ext.node import RulesNode

pytestmark = pytest.mark.asyncio

DEADLINE_S = 30.0


def node(directory: Path) -> RulesNode:
    made = RulesNode(directory)
    for tenant, number in (("a", 1), ("b", 2)):
        made.put_tenant(tenant)
        made.put_service(tenant, "web", f"10.96.0.{number}", f"10.{number}.0.1", f"10.{number}.0.2")
        made.bridge.add(f"{tenant}1", tenant, name="front", tenant_name="front")
    return made


async def explain(here: RulesNode, *argv: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    where = ["--socket", str(here.socket), "--bridge", str(here.bridge_socket)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "vcnode",
        "explain",
        *argv,
        *where,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, out.decode(), err.decode()


async def test_packet_gets_the_expected_verdict(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        await here.until(lambda: here.rules("a1") and here.rules("b1"))
        code, out, err = await explain(here, "default/front", "10.96.0.1:80", "--tenant", "a")
        assert (code, err) == (0, "")
        assert out.splitlines()[:3] == [
            "tcp 10.244.0.9 -> 10.96.0.1:80 from default/front of tenant a",
            "-> goes to one of 10.1.0.1:8080, 10.1.0.2:8080, as expected",
            "",
        ]
        assert "tcp 10.96.0.1:80 is Service port default/web:p" in out
        code, out, err = await explain(here, "b-default/front", "10.96.0.1:80")
        assert code == 0
        assert "-> is rejected: the sender fails at once, as expected" in out
        code, out, err = await explain(here, "default/front", "10.96.0.1:80")
        assert (code, out) == (3, "")
        assert err == "vcnode: default/front: tenants a, b have a pod of that name: add --tenant\n"


async def test_service_of_another_network_gets_a_note(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        here.bridge.change("a1", networks=("blue",))
        await here.until(lambda: here.rules("a1"))
        code, out, _ = await explain(here, "a-default/front", "10.96.0.1:80")
        assert code == 0
        assert "-> is rejected" in out
        assert "10.96.0.1 is an address of Service default/web in network default; this guest is" in out
        code, out, _ = await explain(here, "b-default/front", "10.96.0.1:80")
        assert "network default" not in out, "another tenant's Services are not shown"


async def test_rules_probe_is_not_shown_as_a_service(tmp_path: Path) -> None:
    made = node(tmp_path)
    made.settings["canary"] = {"ipv4Address": "192.0.2.61"}
    async with running(made) as here:
        await here.until(lambda: here.rules("a1"))
        code, out, _ = await explain(here, "a1", "192.0.2.61:10561")
        assert code == 0
        assert "-> goes to 127.0.0.1:10561, as expected" in out
        assert "192.0.2.61:10561 is the rules probe" in out
        assert "the guest has the current generation, " in out
        code, out, _ = await explain(here, "a1", "192.0.2.61:80")
        assert "192.0.2.61 is an address of the rules probe, which has 10561/tcp only" in out


async def test_drifted_or_unreadable_rules_are_reported(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        await here.until(lambda: here.rules("a1"))
        known = here.bridge.guests["a1"]
        assert known.installed is not None
        # The guest reports the given digest, and its packet filter is empty.
        digest = known.installed.digest
        known.installed = make_ruleset(known.installed.generation, ())
        object.__setattr__(known.installed, "digest", digest)
        code, out, _ = await explain(here, "a1", "10.96.0.1:80", "-o", "json")
        found = json.loads(out)
        assert (code, found["rules"], found["agrees"]) == (1, "drifted", False)
        assert found["actual"]["verdicts"] == ["pass"]
        assert found["expected"]["endpoints"] == ["10.1.0.1:8080", "10.1.0.2:8080"]
        known.unreachable = "the guest's agent is not attached"
        code, out, _ = await explain(here, "a1", "10.96.0.1:80")
        assert code == 3
        assert "actual outcome: the guest's agent is not attached" in out


async def test_each_daemon_alone_explains_one_half(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        await here.until(lambda: here.rules("a1"))
        await here.bridge.stop()
        for argv in (("a-default/front",), ("default/front", "--tenant", "a"), ("a1",)):
            code, out, err = await explain(here, argv[0], "10.96.0.1:80", *argv[1:])
            assert (code, err) == (3, "")
            assert "-> goes to one of 10.1.0.1:8080, 10.1.0.2:8080 if the guest has its rules" in out
            assert "actual outcome: kata-bridge: " in out
        code, out, err = await explain(here, "default/other", "10.96.0.1:80")
        assert (code, out) == (3, "")
        assert "no such guest" in err
        await here.bridge.serve(here.bridge_socket)
        await here.stop()
        code, out, err = await explain(here, "a1", "10.96.0.1:80")
        assert (code, err) == (3, "")
        assert "-> goes to one of 10.1.0.1:8080, 10.1.0.2:8080; the expected outcome is unknown" in out
        assert "does kubeproxy-ext run here?" in out
        await here.bridge.stop()
        code, out, err = await explain(here, "a1", "10.96.0.1:80")
        assert (code, out) == (3, "")
        assert "kata-bridge: " in err
        assert "kubeproxy-ext: " in err
