# SPDX-License-Identifier: Apache-2.0
"""The real daemon between a fake API server over TLS and a fake kata-bridge over gRPC."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from bridge_api.messages import Capabilities, ResultCode
from daemonkit.kube.resources import NAMESPACES, SERVICES
from tests.functional.daemon_node import NAME, running
from tests.functional.kubeproxy_ext.node import RulesNode

pytestmark = pytest.mark.asyncio


def node(directory: Path, **settings: object) -> RulesNode:
    made = RulesNode(directory, settings)
    made.put_tenant("a")
    made.put_tenant("b")
    made.put_service("a", "web", "10.96.0.1", "10.1.0.1", "10.1.0.2")
    made.put_service("b", "web", "10.96.0.2", "10.2.0.1")
    return made


async def test_guest_gets_rules_and_then_deltas(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        here.bridge.add("a1", "a")
        await here.until(lambda: here.has("a1", "10.96.0.1/32", "10.1.0.1:8080", "10.1.0.2:8080"))
        assert not here.has("a1", "10.96.0.2")
        (first,) = here.bridge.requests_for("a1")
        assert (first.is_delta, first.flush) == (False, ())
        here.put_slice("a", "web", "10.1.0.2", "10.1.0.3")
        await here.until(lambda: here.has("a1", "10.1.0.3:8080"))
        assert not here.has("a1", "10.1.0.1:8080")
        second = here.bridge.requests_for("a1")[1]
        assert second.is_delta
        assert second.ruleset.generation > first.ruleset.generation
        await here.until(here.is_ready)

        async def is_current() -> bool:
            digests = {guest["digest"] for guest in (await here.status())["guests"]}
            return digests == {second.ruleset.digest}

        # The bridge has it a moment before its answer is here.
        await here.until(is_current)
        status = await here.status()
        assert (status["nodeName"], status["watches"], status["services"]) == (NAME, 2 + 2, 1)
        assert status["tenants"] == {
            "a": {"syncState": "synced", "serviceCIDRs": ["10.96.0.0/16"], "lastKnownAgeSeconds": None}
        }
        (guest,) = status["guests"]
        assert guest["digest"] == guest["desiredDigest"] == second.ruleset.digest
        assert guest["behindSeconds"] is None
        assert await here.stop() == 0
        # Stopping leaves the guests' rules installed.
        assert here.has("a1", "10.1.0.3:8080")


async def test_guests_of_a_tenant_share_ruleset_and_request(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        for number in range(5):
            here.bridge.add(f"a{number}", "a", ips=(f"10.244.0.{number}",))
        here.bridge.add("b1", "b")
        await here.until(lambda: all(here.rules(guest) for guest in here.bridge.guests))
        here.put_slice("a", "web", "10.1.0.9")
        await here.until(lambda: all(here.has(f"a{number}", "10.1.0.9") for number in range(5)))
        changes = [each for each in here.bridge.ruleset_requests if each.is_delta]
        assert len({each.data for each in changes}) == 1
        assert len(changes) == 5
        assert (await here.status())["rulesets"] == 2
        assert await here.metric("vcnode_kubeproxyext_renders_total") == 3


async def test_changes_of_a_tenant_push_nothing_to_others(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        here.bridge.add("a1", "a")
        here.bridge.add("b1", "b")
        await here.until(lambda: here.rules("a1") and here.rules("b1"))
        sent, installed = here.bridge.requests_for("a1"), here.rules("a1")
        for number in range(20):
            here.put_slice("b", "web", f"10.2.0.{number}")
            here.put_service("b", f"more{number}", f"10.96.1.{number}", "10.2.9.9", protocol="UDP")
            await asyncio.sleep(0.02)
        here.put_tenant("b", "new")
        here.apiserver.storage.delete(SERVICES, "b-default", "web")
        await here.until(lambda: here.has("b1", "10.96.1.19") and not here.has("b1", "10.96.0.2"))
        assert here.bridge.requests_for("a1") == sent
        assert here.rules("a1") == installed
        # A change of its own is the same as if the other had never been.
        here.put_slice("a", "web", "10.1.0.9")
        await here.until(lambda: here.has("a1", "10.1.0.9"))
        assert b"10.2." not in here.bridge.requests_for("a1")[-1].data


async def test_deletions_by_event_and_relist_reach_guests(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        here.put_service("a", "other", "10.96.0.7", "10.1.0.7", protocol="UDP")
        here.bridge.add("a1", "a")
        await here.until(lambda: here.has("a1", "10.96.0.7"))
        here.apiserver.storage.delete(SERVICES, "a-default", "other")
        await here.until(lambda: not here.has("a1", "10.1.0.7"))
        # The UDP flows of a Service that is gone are flushed with the change.
        flow = here.bridge.requests_for("a1")[-1].flush
        assert [(each.protocol, each.destination, each.port) for each in flow] == [("udp", "10.96.0.7", 80)]
        here.apiserver.half_open()
        here.put_slice("a", "web", "10.1.0.5")
        here.apiserver.storage.compact()
        here.apiserver.expire_watches()
        here.apiserver.heal()
        await here.until(lambda: here.has("a1", "10.1.0.5"))


async def test_start_without_apiserver_uses_saved_state(tmp_path: Path) -> None:
    first = node(tmp_path)
    async with running(first) as here:
        here.bridge.add("a1", "a")
        await here.until(lambda: here.rules("a1"))
        assert await here.stop() == 0
        assert [path.name for path in (tmp_path / "state").iterdir()] == ["a.json"]
        sent, rules = len(here.bridge.ruleset_requests), here.rules("a1")
        await here.apiserver.stop()
        here.bridge.add("a2", "a", ips=("10.244.0.77",))
        here.bridge.add("b1", "b")
        await here.start()
        # The synced guest is unchanged, the new one gets the saved rules, the other tenant's waits.
        await here.until(lambda: here.rules("a2") == rules)
        assert [each.guest for each in here.bridge.ruleset_requests[sent:]] == ["a2"]
        assert here.rules("b1") == ""
        status = await here.status()
        assert status["tenants"]["a"]["syncState"] == "lastKnown"
        assert status["tenants"]["a"]["lastKnownAgeSeconds"] >= 0
        assert status["tenants"]["b"]["syncState"] == "notSynced"
        assert not await here.is_ready()
        here.put_slice("a", "web", "10.1.0.8")
        await here.apiserver.start()
        await here.until(lambda: here.has("a1", "10.1.0.8") and here.has("a2", "10.1.0.8"), 60.0)
        await here.until(lambda: here.rules("b1"))
        await here.until(here.is_ready)


async def test_new_guests_wait_with_last_known_wait(tmp_path: Path) -> None:
    async with running(node(tmp_path, lastKnown="wait")) as here:
        here.bridge.add("a1", "a")
        await here.until(lambda: here.rules("a1"))
        assert await here.stop() == 0
        await here.apiserver.stop()
        here.bridge.add("a2", "a")
        await here.start()
        await here.until(lambda: "tenant not synced, its new guests wait" in here.log.read_text())
        assert here.rules("a2") == ""
        await here.apiserver.start()
        await here.until(lambda: here.rules("a2") == here.rules("a1"), 60.0)


async def test_restart_applies_nothing_again(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        here.bridge.add("a1", "a")
        await here.until(lambda: here.rules("a1"))
        generation = here.bridge.requests_for("a1")[-1].ruleset.generation
        await here.stop(signal.SIGKILL)
        here.put_tenant("b")
        await here.start()
        # It is submitted once more, for the bridge to repair from, and is applied already.
        await here.until(lambda: len(here.bridge.requests_for("a1")) == 2)
        again = here.bridge.requests_for("a1")[-1]
        assert again.result.code is ResultCode.UNCHANGED
        assert again.ruleset.generation > generation
        here.put_slice("a", "web", "10.1.0.4")
        await here.until(lambda: here.has("a1", "10.1.0.4"))
        assert here.bridge.requests_for("a1")[-1].is_delta


async def test_kata_bridge_restart_resubmits_all_rulesets(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        here.bridge.add("a1", "a")
        here.bridge.add("a2", "a")
        await here.until(lambda: here.rules("a1") and here.rules("a2"))
        await here.bridge.stop()
        here.put_slice("a", "web", "10.1.0.6")
        del here.bridge.guests["a2"]

        async def is_seen() -> bool:
            return not (await here.status())["bridge"]["isSynced"]

        await here.until(is_seen)
        await here.bridge.serve(here.bridge_socket)
        await here.until(lambda: here.has("a1", "10.1.0.6"))

        async def is_one() -> bool:
            return len((await here.status())["guests"]) == 1

        await here.until(is_one)


async def test_status_has_the_refused_line(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        guest = here.bridge.add("a1", "a")
        guest.next_results.append((ResultCode.REFUSED, "line 7: -j NOWHERE"))

        async def problem() -> bool:
            guests = (await here.status())["guests"]
            return bool(guests and guests[0]["problem"] == "REFUSED: line 7: -j NOWHERE")

        await here.until(problem)
        assert "line 7: -j NOWHERE" in here.log.read_text(encoding="utf-8")
        # What changes afterwards is tried.
        here.put_slice("a", "web", "10.1.0.4")
        await here.until(lambda: here.has("a1", "10.1.0.4"))

        async def is_over() -> bool:
            return [guest["problem"] for guest in (await here.status())["guests"]] == [""]

        # The bridge has it a moment before its answer is here.
        await here.until(is_over)


async def test_status_reports_why_a_guest_has_no_rules(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        here.bridge.add("nobody", "")
        here.bridge.add("policy", "a", not_injectable="the agent's policy denies SetIPTables")
        here.bridge.add("unprobed", "a", capabilities=None)
        here.bridge.add("odd", "a", capabilities=Capabilities(channel="shim", backends=("pf",)))
        here.bridge.add("a1", "a")
        await here.until(lambda: here.rules("a1"))
        problems = {guest["id"]: guest["problem"] for guest in (await here.status())["guests"]}
        assert problems == {
            "nobody": "its pod belongs to no tenant",
            "policy": "the agent's policy denies SetIPTables",
            "unprobed": "kata-bridge has probed no channel of it yet",
            "odd": "its packet filter is not supported: neither iptables nor nft",
            "a1": "",
        }
        here.bridge.change("unprobed", capabilities=Capabilities(channel="shim", backends=("iptables",)))
        await here.until(lambda: here.rules("unprobed"))


async def test_explain_has_model_and_documents(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        here.bridge.add("a1", "a")
        await here.until(lambda: here.rules("a1"))
        for query in ("guest=a1", "pod=a-default/a1", "tenant=a&pod=default/a1"):
            status, body = await here.get(f"/explain?{query}")
            assert status == 200
        page = json.loads(body)
        assert page["documents"][0]["text"] == here.rules("a1")
        assert page["namespaces"] == {"a-default": "default"}
        frontends = page["models"][0]["rules"]["services"][0]["frontends"]
        assert [(each["ip"], each["port"]) for each in frontends] == [("10.96.0.1", 80)]
        assert (await here.get("/explain?guest=zz"))[0] == 404
        assert (await here.get("/explain"))[0] == 400


async def test_root_namespace_annotation_sets_service_cidrs(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        here.bridge.add("a1", "a")
        await here.until(lambda: here.has("a1", "10.96.0.0/16"))
        annotations = {"tenancy.x-k8s.io/vcrootns": "true", "vcnode.io/service-cidrs": "172.20.0.0/16, odd"}
        here.apiserver.storage.put(NAMESPACES, {"metadata": {"name": "a", "annotations": annotations}})
        await here.until(lambda: here.has("a1", "10.96.0.0/16", "172.20.0.0/16"))


@pytest.mark.parametrize(
    ("settings", "code", "error"),
    [
        ({}, 0, b"config.yaml: ok"),
        ({"nodeName": "Node!"}, 2, b"nodeName: expected the name of a node, got 'Node!'"),
    ],
)
async def test_check_config_prints_all_errors(
    tmp_path: Path, settings: dict[str, str], code: int, error: bytes
) -> None:
    here = RulesNode(tmp_path, settings)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubeproxy_ext", "--config", str(here.write_config()), "--check-config"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, out) == (code, b"")
    assert error in err
