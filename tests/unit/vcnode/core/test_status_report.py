# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from vcnode.core import status_report

STARTED = 1_800_000_000.0
WHOLE = {
    "daemon": "vn-agent",
    "nodeName": "node-1",
    "pid": 42,
    "startedAt": STARTED,
    "listen": {"address": "::", "port": 10550},
    "kubelet": {"address": "127.0.0.1:10250", "connections": 3},
    "sources": {
        "tenants": {"ageSeconds": 0.0, "isSavedState": False},
        "pods": {"ageSeconds": 312.4, "isSavedState": True},
    },
    "tenants": ["a", "b"],
    "badTenants": [
        {"source": "c.yaml", "tenant": "c", "reason": "kind: wrong", "keepsLastGoodState": True},
        {"source": "d.yaml", "tenant": "", "reason": "not UTF-8", "keepsLastGoodState": False},
    ],
    "pods": {"tenants": 12, "notServed": ["a-web/x: claimed twice"]},
    "connections": 4,
    "tunnels": 1,
    "isDraining": False,
    "somethingNew": [1],
}


def report(code: int = 200, readyz: bytes = b"", **changes: object) -> status_report.DaemonReport:
    return status_report.read((code, readyz), json.dumps(WHOLE | changes).encode())


def test_report_shows_each_field_of_a_status() -> None:
    assert status_report.render(report(), "/run/x.sock", STARTED + 3720) == [
        "vn-agent on node-1: ready  (/run/x.sock)",
        "  running         1 h 2 min, pid 42",
        "  listens on      [::]:10550",
        "  kubelet         127.0.0.1:10250, connections 3",
        "  source pods     from saved state, not synced, age 5 min 12 s",
        "  source tenants  age 0 s",
        "  tenants         2: a, b",
        "  BAD TENANT      c.yaml (tenant c): kind: wrong; its last good state is served",
        "  BAD TENANT      d.yaml: not UTF-8; it is not served",
        "  pods            12 of tenants",
        "  POD NOT SERVED  a-web/x: claimed twice",
        "  connections     4",
        "  tunnels         1",
    ]


def test_the_way_to_the_kubelet_and_its_version_are_shown() -> None:
    kubelet = {"address": "super:6443", "connections": 3, "server": "superApiserver", "version": "v1.34.4"}
    lines = status_report.render(report(kubelet=kubelet), "/run/x.sock", STARTED)
    assert "  kubelet         super:6443, by the super API server, v1.34.4, connections 3" in lines


def test_failing_sources_and_retained_tenants_are_shown() -> None:
    sources = {
        "tenants": {
            "ageSeconds": 6.0,
            "failure": {"message": "/t: No such file or directory", "seconds": 5.0},
            "retained": {"tenants": ["a", "b"], "seconds": 61.0, "clientLists": ["c"]},
        },
        "pods": {"ageSeconds": None, "failure": {"message": "kubelet /pods: refused", "seconds": 1.0}},
    }
    lines = status_report.render(report(sources=sources), "x", STARTED)
    assert [line.split(maxsplit=1) for line in lines[4:10]] == [
        ["source", "pods     not synced"],
        ["PROBLEM", "pods cannot be read for 1 s: kubelet /pods: refused"],
        ["source", "tenants  age 6 s"],
        ["PROBLEM", "tenants cannot be read for 5 s: /t: No such file or directory"],
        [
            "RETAINED",
            "for 1 min 1 s, missing from the source: 2: a, b; restore them, or `vcnode tenant release`",
        ],
        [
            "RETAINED",
            "for 1 min 1 s, missing vn-agent-clients of: 1: c; restore them, or `vcnode tenant release`",
        ],
    ]


def test_report_of_kubeproxy_ext() -> None:
    body = {
        "daemon": "kubeproxy-ext",
        "nodeName": "node-1",
        "sources": {"services": {"ageSeconds": None}, "node": {"ageSeconds": 2.0}},
        "tenants": {"vc-b": {"syncState": "notSynced"}, "vc-a": {"syncState": "synced"}},
        "problems": [{"tenant": "vc-a", "problem": "x"}],
        "guests": [
            {"id": "a", "behindSeconds": 3.0, "desiredGeneration": 4},
            {"id": "b", "behindSeconds": None, "desiredGeneration": 4},
            {"id": "c", "behindSeconds": 3.0, "desiredGeneration": None},  # kata-bridge: nothing to apply
        ],
    }
    report = status_report.read((200, b""), json.dumps(body).encode())
    assert status_report.render(report, "x", STARTED) == [
        "kubeproxy-ext on node-1: ready  (x)",
        "  source node      age 2 s",
        "  source services  not synced",
        "  tenants          2: vc-a, vc-b (not synced)",
        "  guests           3, of these 1 behind",
        "  ignored          1 parts of tenants' Services: see -o yaml",
    ]


def test_report_of_kata_bridge() -> None:
    body = {"daemon": "kata-bridge", "guests": [{"id": "a"}], "problems": {"cri": "no answer"}}
    report = status_report.read((200, b""), json.dumps(body).encode())
    assert status_report.render(report, "x", STARTED) == [
        "kata-bridge: ready  (x)",
        "  guests   1",
        "  PROBLEM  cri: no answer",
    ]


def test_report_of_dnsconfig() -> None:
    waits = {"pod": "vc-a-web/desk", "tenant": "vc-a", "tenantPod": "web/desk"}
    body = {
        "daemon": "dnsconfig",
        "nodeName": "node-1",
        "nodeResolver": {"problem": "no such file"},
        "guests": 2,
        "pods": [
            {"pod": "vc-a-web/cart", "state": "applied", "waitMessage": "", "problem": ""},
            waits | {"state": "applied", "waitMessage": "network red does not exist", "problem": ""},
            {"pod": "vc-a-web/till", "state": "failing", "waitMessage": "", "problem": "no room"},
        ],
    }
    report = status_report.read((200, b""), json.dumps(body).encode())
    assert status_report.render(report, "x", STARTED) == [
        "dnsconfig on node-1: ready  (x)",
        "  guests     2",
        "  PROBLEM    the node's resolv.conf: no such file",
        "  pods       3 of tenants, of these 1 waiting",
        "  POD WAITS  web/desk of vc-a: network red does not exist",
        "  POD FAILS  vc-a-web/till: kata-bridge cannot deliver its resolv.conf: no room",
    ]


def test_only_the_first_waiting_pods_are_named() -> None:
    pods = [{"pod": f"vc-a-web/p{n:02}", "waitMessage": "network red does not exist"} for n in range(100)]
    body = {"daemon": "dnsconfig", "pods": pods}
    lines = status_report.render(status_report.read((200, b""), json.dumps(body).encode()), "x", STARTED)
    assert lines[1] == "  pods       100 of tenants, of these 100 waiting"
    assert len(lines) == 15
    assert lines[-1] == "  and        88 more pods: see -o yaml"


def test_unready_daemon_reports_why() -> None:
    lines = status_report.render(
        report(503, b"tenants: not synced\npods: ok, age 1 s\n", isDraining=True), "x", STARTED
    )
    assert lines[:2] == ["vn-agent on node-1: NOT READY  (x)", "  NOT READY       tenants: not synced"]
    assert lines[3] == "  draining        it finishes open requests and accepts no new ones"
    assert "no reason given" in status_report.render(report(503), "x", STARTED)[1]


def test_a_failing_source_is_shown_once_with_its_remedy() -> None:
    failure = {"message": "kubelet: away", "seconds": 1.0, "remedy": "start it"}
    sources = {"pods": {"ageSeconds": None, "failure": failure}}
    readyz = b"pods: not synced; cannot be read for 1 s: kubelet: away; start it\n"
    unready = status_report.render(report(503, readyz, sources=sources), "x", STARTED)
    assert [line for line in unready if "away" in line] == [f"  NOT READY       {readyz.decode().strip()}"]
    stale = status_report.render(report(sources=sources), "x", STARTED)
    assert "  PROBLEM         pods cannot be read for 1 s: kubelet: away" in stale
    assert "  REMEDY          start it" in stale


def test_a_changed_log_level_is_shown() -> None:
    level = {"level": "debug", "configured": "info"}
    shown = status_report.render(report(logging=level), "x", STARTED)
    assert "  log level       debug until SIGHUP or a restart; configured: info" in shown
    level["configured"] = "debug"
    assert not any("log level" in each for each in status_report.render(report(logging=level), "x", STARTED))


def test_missing_fields_are_not_shown() -> None:
    less = status_report.read((200, b""), b'{"daemon": "kata-bridge"}')
    assert status_report.render(less, "x", STARTED) == ["kata-bridge: ready  (x)"]


def test_only_the_first_tenants_are_named() -> None:
    lines = status_report.render(report(tenants=[f"t{n}" for n in range(100)]), "x", STARTED)
    assert any("100: t0, t1," in line and line.endswith("t11 and 88 more") for line in lines)
    assert "  tenants         none" in status_report.render(report(tenants=[]), "x", STARTED)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"<html>", b'{"daemon": "x", "tenants": 1}', b'"\xff"'])
def test_other_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(status_report.ReportError):
        status_report.read((200, b""), body)


def test_narrow_terminal_gets_folded_lines() -> None:
    why = b"pods: not synced; cannot be read for 185 s: super cluster: connection refused; see its log\n"
    lines = status_report.render(report(503, why), "/run/vcnode/vn-agent/status.sock", STARTED, 60)
    assert lines[:5] == [
        "vn-agent on node-1: NOT READY",
        "    (/run/vcnode/vn-agent/status.sock)",
        "  NOT READY       pods: not synced; cannot be read for 185",
        "                  s: super cluster: connection refused; see",
        "                  its log",
    ]
    assert max(map(len, lines)) <= 60
    silent = status_report.render_silent("/run/vcnode/dnsconfig/status.sock", "No such file or directory", 60)
    assert silent == [
        "/run/vcnode/dnsconfig/status.sock: NO ANSWER: No such file",
        "    or directory",
    ]
