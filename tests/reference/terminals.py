# SPDX-License-Identifier: Apache-2.0
"""What the tool's verbs print on a terminal of 80 columns, from pages of real daemons and from known faults.

`terminal/*.json` are documents that `vcnode VERB -o json` printed on the booted node of `tests.systemd`, with
`--record tests/reference/terminal`; a guest that is unreachable has been added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ruleset.document import make_ruleset
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, Protocol, ServiceRules
from ruleset.render.iptables import render as iptables
from ruletrace.packet import Packet
from tests.reference import screenshots
from vcnode.core import explain_report, findings, guests_report, status_report, top_report
from vcnode.core.doctor import diagnose
from vcnode.core.doctor_facts import ConfigFile, DaemonAnswer, DoctorFacts, PeerAnswer, Runtime, Space
from vcnode.core.top_report import DaemonReading, NodeReading, ProcessUsage, TenantCounters

_PAGES = Path(__file__).with_name("terminal")
# When the pages were recorded, in seconds since 1970: 2 hours after the daemons' start.
_UP_S = 7200.0
_TENANT = "tenant-1-70b001-test"
# As measured on that node.
_RESIDENT_BYTES = {
    "vn-agent": 32_000_000,
    "kata-bridge": 64_000_000,
    "kubeproxy-ext": 48_000_000,
    "dnsconfig": 47_000_000,
}


def screens() -> Mapping[str, tuple[str, Sequence[str]]]:
    """The command and its lines, by the screenshot's name."""
    return {
        "status": ("vcnode status", _status()),
        "top": ("vcnode top", _top()),
        "guests": ("vcnode guests", _guests()),
        "explain": ("vcnode explain shop/client 10.96.12.7:80", _explain()),
        "doctor": ("vcnode doctor", _doctor()),
    }


def _status() -> list[str]:
    lines: list[str] = []
    for item in _page("status")["items"]:
        status = item["status"]
        report = status_report.read((200, b""), json.dumps(status).encode())
        if lines:
            lines.append("")
        lines += status_report.render(
            report, item["address"], status["startedAt"] + _UP_S, screenshots.COLUMNS
        )
    return lines


def _guests() -> list[str]:
    page = _page("guests")
    status = msgspec.convert({**page["status"], "guests": page["items"]}, guests_report.BridgeStatus)
    blocked = status.start_gate.blocked if status.start_gate else ()
    return [
        *guests_report.render(status, status.guests, screenshots.COLUMNS),
        *guests_report.render_blocked(blocked, screenshots.COLUMNS),
    ]


def _top() -> list[str]:
    """Of the same node: a tenant reads logs."""
    pages = [item["status"] for item in _page("status")["items"]]

    def reading(seconds: float) -> NodeReading:
        return NodeReading(
            seconds,
            pages[0]["startedAt"] + _UP_S + seconds,
            tuple(
                DaemonReading(
                    page["daemon"],
                    is_ready=True,
                    started_at=page["startedAt"],
                    usage=ProcessUsage(9.0 + 0.004 * seconds, _RESIDENT_BYTES[page["daemon"]], 24),
                )
                for page in pages
            ),
            {_TENANT: TenantCounters(100 + 12.5 * seconds, 3, 1e6 + 48_000 * seconds)},
            bridge,
        )

    guests = _page("guests")
    bridge = msgspec.convert({**guests["status"], "guests": guests["items"]}, guests_report.BridgeStatus)
    return top_report.render(top_report.compare(reading(0), reading(2)), screenshots.COLUMNS)


def _explain() -> list[str]:
    """A guest that has lost a rule: another program removed it."""
    port = "vc-shop/web:http"
    endpoints = EndpointSet(
        port, Protocol.TCP, False, (Endpoint("10.0.7.4", 8080), Endpoint("10.0.7.5", 8080))
    )
    service = ServiceRules("vc-shop/web", (Frontend("10.96.12.7", 80, Protocol.TCP, port, endpoints),))
    rules = GuestRules(Family.IPV4, (service,), ("10.96.0.0/16",))
    applied = iptables(rules)
    guest = explain_report.GuestIdentity(
        "6c1f0a37d2b94e58",
        "vc-shop/client",
        _TENANT,
        "shop/client",
        ("10.0.7.3",),
        "agent",
        digest=make_ruleset(7, (applied,)).digest,
    )
    desired = explain_report.DesiredRules(rules, guest.digest, 7, namespaces={"vc-shop": "shop"})
    found = explain_report.explain(
        guest,
        Packet("10.0.7.3", Protocol.TCP, "10.96.12.7", 80),
        desired,
        explain_report.ReadBack((), (applied,)),
    )
    return explain_report.render(found, screenshots.COLUMNS)


def _doctor() -> list[str]:
    """vn-agent has no rights at the kubelet, the runtime has NRI off, and the disk is full."""
    agent = DaemonAnswer("vn-agent", "/run/vcnode/vn-agent/status.sock", is_ready=True, version="0.1.0")
    facts = DoctorFacts(
        version="0.1.0",
        configs=(ConfigFile("vn-agent", "/etc/vcnode/vn-agent.yaml"),),
        daemons=(agent,),
        kubelet=PeerAnswer(
            "vn-agent", "10.0.0.11:10250", "kubelet", codes=(("/healthz", 403), ("/pods", 403))
        ),
        runtime=Runtime("/run/nri/nri.sock", has_socket=False, disabled_in="/etc/containerd/config.toml"),
        spaces=(Space("logs", "/var/log/vcnode", 3 << 20, 40 << 30, 900, 1000),),
    )
    return findings.render(diagnose(facts), screenshots.COLUMNS)


def _page(name: str) -> dict[str, Any]:
    page: dict[str, Any] = json.loads((_PAGES / f"{name}.json").read_text())
    return page
