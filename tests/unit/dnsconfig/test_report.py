# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import re
from pathlib import Path

import pytest

from daemonkit.kube.resources import SERVICES
from daemonkit.status.server import Reply
from devkit.kube import wire as wire
from devkit.kube.storage import StatusError
from dnsconfig.cluster.objects import NETWORKS
from dnsconfig.node_resolv_conf import NodeResolvConf
from dnsconfig.report import StatusReport
from dnsconfig.retention.resolver_retention import REVOCATION_DELAY_S
from tests.unit.dnsconfig.node import SimulatedNode
from tests.unit.dnsconfig.objects import tenant

pytestmark = pytest.mark.asyncio


def shown(here: SimulatedNode, path: Path | None = None) -> StatusReport:
    return StatusReport(
        here.controller, here.watch, here.session, NodeResolvConf(path, (), here.clock), hold_s=600.0
    )


async def test_ready_when_bridge_and_sources_are_synced(tmp_path: Path) -> None:
    here = SimulatedNode()
    here.put(*tenant("a", default="10.0.0.1"))
    here.put_pod("a")
    report = shown(here)
    assert not report.readiness().is_ready
    async with here.running():
        state = report.readiness()
        assert state.is_ready
        assert state.lines[0] == "kata-bridge: ok"
        assert not shown(here, tmp_path / "absent").readiness().is_ready
        draining = shown(here)
        draining.start_draining()
        assert not draining.readiness().is_ready
        here.bridge.lose_state()
        await asyncio.sleep(0.01)
        assert not report.readiness().is_ready


async def test_a_vanished_kind_is_stale_and_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Its definition was deleted. The last objects stay in use, and readiness has the reason."""
    here = SimulatedNode()
    here.put(*tenant("a", default="10.0.0.1"))
    here.put_pod("a")
    report = shown(here)
    async with here.running():
        here.storage.absent.add(NETWORKS)
        here.transport.inject(wire.event("ERROR", StatusError(410, "Expired", "too old").status))
        await asyncio.sleep(10)
        capsys.readouterr()
        await asyncio.sleep(3600)
        assert "failed" not in capsys.readouterr().err
        readiness = report.readiness()
        assert readiness.is_ready
        (line,) = [line for line in readiness.lines if line.startswith("networks: ")]
        stale = r"networks: stale, age \d+ s; cannot be read for 36\d\d s: super cluster: networks\.\S+: 404 "
        stale += r"NotFound: .*; apply packaging/crds if it defines the resource; .*"
        assert re.fullmatch(stale, line)
        sources = report.status(here.clock())["sources"]
        assert isinstance(sources, dict)
        assert "404" in sources["networks"]["failure"]["message"]

        here.storage.absent.clear()
        await asyncio.sleep(60)
        assert "list and watch work again" in capsys.readouterr().err
        assert not any("stale" in line for line in report.readiness().lines)


async def test_status_and_explain_of_a_pod() -> None:
    here = SimulatedNode()
    here.put(*tenant("a", default="10.0.0.1"), *tenant("b"))
    uid = here.put_pod("a", hostname="web", subdomain="svc")
    here.put_pod("b")
    here.bridge.add("g1", "a", "a-shop/web", uid=uid)
    async with here.running():
        report = shown(here)
        ours, theirs = json.loads(Reply.json(report.status(here.clock())).body)["pods"]
        assert ours == {
            "pod": "a-shop/web",
            "uid": uid,
            "guest": "g1",
            "tenant": "a",
            "tenantPod": "shop/web",
            "network": "default",
            "servers": ["10.0.0.1"],
            "waitMessage": "",
            "waitSeconds": None,
            "retainedBecause": "",
            "isServerRemoved": False,
            "serverRemovedInSeconds": None,
            "state": "applied",
            "problem": "",
        }
        assert theirs["waitMessage"] == "network default does not exist"
        assert theirs["waitSeconds"] > 0
        assert report.states() == {("applied",): 2.0, ("pending",): 0.0, ("failing",): 0.0}
        for query, code in (
            ({"pod": "a-shop/web"}, 200),
            ({"pod": "shop/web", "tenant": "a"}, 200),
            ({"guest": "g1"}, 200),
            ({"guest": "g1", "tenant": "b"}, 404),
            ({"pod": "shop/web"}, 404),
            ({"pod": "a-shop/web", "tenant": "b"}, 404),
            ({"guest": ""}, 404),
            ({}, 400),
        ):
            assert report.explain(query, here.clock()).status == code, query
        page = json.loads(report.explain({"guest": "g1"}, here.clock()).body)
        assert page["record"] == "web.svc.shop.svc.cluster.local"
        assert page["text"] == here.bridge.resolv_confs[uid]
        assert page["lines"][-1] == {
            "keyword": "options",
            "values": [{"value": "ndots:5", "source": "policy ClusterFirst"}],
        }


async def test_a_revoked_server_is_on_both_pages() -> None:
    here = SimulatedNode()
    here.put(*tenant("a", default="10.0.0.1", blue="10.0.0.2"))
    here.put_pod("a", network="blue")
    async with here.running():
        report = shown(here)
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(1)
        reason = "network blue has no DNS server yet: Service kube-system/kube-dns-blue does not exist"
        (losing,) = json.loads(Reply.json(report.status(here.clock())).body)["pods"]
        assert (losing["retainedBecause"], losing["waitMessage"], losing["isServerRemoved"]) == (
            reason,
            "",
            False,
        )
        assert REVOCATION_DELAY_S - 2 < losing["serverRemovedInSeconds"] < REVOCATION_DELAY_S
        await asyncio.sleep(REVOCATION_DELAY_S)
        (lost,) = json.loads(Reply.json(report.status(here.clock())).body)["pods"]
        assert (lost["retainedBecause"], lost["waitMessage"], lost["isServerRemoved"]) == ("", reason, True)
        assert lost["serverRemovedInSeconds"] is None
        page = json.loads(report.explain({"pod": "a-shop/web"}, here.clock()).body)
        assert [line["keyword"] for line in page["lines"]] == ["#", "search", "options"]
        assert page["reason"] == "NoServerAddress"
        # As `vcnode explain dns` prints it.
        lines = [
            f"{line['keyword']} {' '.join(value['value'] for value in line['values'])}\n"
            for line in page["lines"]
        ]
        assert "".join(lines) == page["text"]
