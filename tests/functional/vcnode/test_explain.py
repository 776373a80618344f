# SPDX-License-Identifier: Apache-2.0
"""`vcnode explain` as a process, between a real kubeproxy-ext and a stand-in kata-bridge."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from ruleset.document import make_ruleset
from tests.functional.daemon_node import running
from tests.functional.kubeproxy_ext.node import Node

pytestmark = pytest.mark.asyncio

DEADLINE_S = 30.0


def node(directory: Path) -> Node:
    made = Node(directory)
    for tenant, number in (("a", 1), ("b", 2)):
        made.put_tenant(tenant)
        made.put_service(tenant, "web", f"10.96.0.{number}", f"10.{number}.0.1", f"10.{number}.0.2")
        made.bridge.add(f"{tenant}1", tenant, name="front", tenant_name="front")
    return made


async def explain(here: Node, *argv: str) -> tuple[int, str, str]:
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


async def test_it_goes_where_it_should(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        await here.until(lambda: here.rules("a1") and here.rules("b1"))
        code, out, err = await explain(here, "default/front", "10.96.0.1:80", "--tenant", "a")
        assert (code, err) == (0, "")
        assert out.splitlines()[:3] == [
            "tcp 10.244.0.9 -> 10.96.0.1:80 from default/front of tenant a",
            "-> goes to one of 10.1.0.1:8080, 10.1.0.2:8080, as it should",
            "",
        ]
        assert "tcp 10.96.0.1:80 belongs to Service port default/web:p" in out
        code, out, err = await explain(here, "b-default/front", "10.96.0.1:80")
        assert code == 0
        assert "-> is rejected: the sender is told at once, as it should" in out
        code, out, err = await explain(here, "default/front", "10.96.0.1:80")
        assert (code, out) == (1, "")
        assert err == "vcnode: default/front: tenants a, b have one: say whose with --tenant\n"


async def test_a_service_of_another_network_is_named(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        here.bridge.change("a1", networks=("blue",))
        await here.until(lambda: here.rules("a1"))
        code, out, _ = await explain(here, "a-default/front", "10.96.0.1:80")
        assert code == 0
        assert "-> is rejected" in out
        assert (
            "10.96.0.1 is an address of Service default/web in network default, where this guest is not"
            in out
        )
        code, out, _ = await explain(here, "b-default/front", "10.96.0.1:80")
        assert "network default" not in out, "another tenant's Services are not told"


async def test_the_canary_is_told_from_a_service(tmp_path: Path) -> None:
    made = node(tmp_path)
    made.settings["canary"] = {"ipv4Address": "192.0.2.61"}
    async with running(made) as here:
        await here.until(lambda: here.rules("a1"))
        code, out, _ = await explain(here, "a1", "192.0.2.61:10561")
        assert code == 0
        assert "-> goes to 127.0.0.1:10561, as it should" in out
        assert "192.0.2.61:10561 is the canary: it leads a guest to its own loopback" in out
        assert "the guest has the current generation, " in out
        code, out, _ = await explain(here, "a1", "192.0.2.61:80")
        assert "192.0.2.61 is the address of the canary, with 10561/tcp alone" in out


async def test_rules_that_drifted_or_are_behind_are_said(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        await here.until(lambda: here.rules("a1"))
        known = here.bridge.guests["a1"]
        assert known.installed is not None
        # The guest believes that it holds what it was given; its packet filter is empty.
        digest = known.installed.digest
        known.installed = make_ruleset(known.installed.generation, ())
        object.__setattr__(known.installed, "digest", digest)
        code, out, _ = await explain(here, "a1", "10.96.0.1:80", "--json")
        found = json.loads(out)
        assert (code, found["rules"], found["agrees"]) == (1, "drifted", False)
        assert found["does"]["fates"] == ["pass"]
        assert found["should"]["endpoints"] == ["10.1.0.1:8080", "10.1.0.2:8080"]
        known.unreachable = "the guest's agent is not attached"
        code, out, _ = await explain(here, "a1", "10.96.0.1:80")
        assert code == 1
        assert "what it does is not known: the guest's agent is not attached" in out


async def test_half_of_it_is_said_when_one_daemon_is_away(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        await here.until(lambda: here.rules("a1"))
        await here.bridge.stop()
        for argv in (("a-default/front",), ("default/front", "--tenant", "a"), ("a1",)):
            code, out, err = await explain(here, argv[0], "10.96.0.1:80", *argv[1:])
            assert (code, err) == (1, "")
            assert "-> goes to one of 10.1.0.1:8080, 10.1.0.2:8080, if the guest's rules are" in out
            assert "what it does is not known: kata-bridge: " in out
        code, out, err = await explain(here, "default/other", "10.96.0.1:80")
        assert (code, out) == (1, "")
        assert "no such guest" in err
        await here.bridge.serve(here.bridge_socket)
        await here.stop()
        code, out, err = await explain(here, "a1", "10.96.0.1:80")
        assert (code, err) == (1, "")
        assert "-> goes to one of 10.1.0.1:8080, 10.1.0.2:8080; whether it should is not known" in out
        assert "does kubeproxy-ext run here?" in out
        await here.bridge.stop()
        code, out, err = await explain(here, "a1", "10.96.0.1:80")
        assert (code, out) == (1, "")
        assert "kata-bridge: " in err
        assert "kubeproxy-ext: " in err
