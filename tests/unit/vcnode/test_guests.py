# SPDX-License-Identifier: Apache-2.0
"""`vcnode guests` without a daemon."""

import argparse
import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import pytest

from daemonkit.status.server import ListenAddress
from vcnode import daemons, guests
from vcnode.output import output_of
from vcnode.terminal import Terminal, ToolError

NOW = dt.datetime(2027, 3, 1, tzinfo=dt.UTC)

GOOD = {
    "id": "0123456789abcdef",
    "pod": "vc-a-shop/web",
    "tenant": "vc-a",
    "tenantPod": "shop/web",
    "networks": ["blue"],
    "channel": "agent",
    "generation": 7,
    "digest": "d7",
    "desiredGeneration": 7,
    "state": "current",
    "message": "",
    "behindSeconds": None,
}
AWAY = GOOD | {
    "id": "away",
    "tenant": "vc-b",
    "desiredGeneration": 9,
    "state": "unreachable",
    "message": "agent: the guest's agent has not attached",
    "behindSeconds": 65.2,
}


def test_guest_without_ipv6_rules_reports_why(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {
        "daemon": "kata-bridge",
        "isSynced": True,
        "guests": [GOOD | {"ipv6Message": "the guest image lacks ip6tables"}],
    }
    code, text = run(monkeypatch, status)
    assert (code, text.splitlines()[-1].partition("current")[2].strip()) == (
        0,
        "no IPv6 rules: the guest image lacks ip6tables",
    )


def run(
    monkeypatch: pytest.MonkeyPatch, status: object, *argv: str, width: int | None = None
) -> tuple[int, str]:
    requests: list[tuple[ListenAddress, str]] = []

    def fetch(address: ListenAddress, path: str, _timeout_s: float, _method: str) -> tuple[int, bytes]:
        requests.append((address, path))
        if isinstance(status, Exception):
            raise status
        return 200, json.dumps(status).encode()

    monkeypatch.setattr(daemons, "fetch", fetch)
    top = argparse.ArgumentParser()
    guests.add_to(top.add_subparsers())
    out = io.StringIO()
    arguments = top.parse_args(["guests", *argv])
    code: int = arguments.run(arguments, Terminal(out, io.StringIO(), NOW, output_of(arguments), width))
    assert [path for _, path in requests] == ["/status"]
    return code, out.getvalue()


def _status(*found: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"daemon": "kata-bridge", "isSynced": True, "guests": list(found), **more}


def test_guests_with_their_rulesets_exit_0(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, _status(GOOD, unmanaged=3)) == (
        0,
        "POD       TENANT  NETWORK  STATE    WHY\n"
        "shop/web  vc-a    blue     current\n"
        "3 sandboxes are not managed: in the host's network, or of another runtime\n",
    )


def test_guest_that_is_behind_reports_why_and_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = run(monkeypatch, _status(GOOD, AWAY, problems={"cri": "no answer"}))
    assert code == 1
    assert out.splitlines() == [
        "cri: no answer",
        "POD       TENANT  NETWORK  STATE        WHY",
        "shop/web  vc-a    blue     current",
        "shop/web  vc-b    blue     unreachable  agent: the guest's agent has not attached (for 1 min 5 s)",
    ]


def test_wide_has_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, _status(GOOD, AWAY), "-o", "wide")[1].splitlines() == [
        "POD       TENANT  NETWORK  STATE        SUPER POD      GUEST         CHANNEL  GENERATION  WHY",
        "shop/web  vc-a    blue     current      vc-a-shop/web  0123456789ab  agent    7",
        "shop/web  vc-b    blue     unreachable  vc-a-shop/web  away          agent    7 of 9      "
        "agent: the guest's agent has not attached (for 1 min 5 s)",
    ]


def test_terminal_of_80_columns_is_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are cut in the middle: replicas of a Deployment differ at their ends."""
    pods = [f"payments-production/checkout-frontend-7d4f9c66b8-{end}" for end in ("abcde", "fghij")]
    guests = [AWAY | {"tenantPod": pod, "tenant": "customers-7d3f1a-acme"} for pod in pods]
    blocked = BLOCKED | {"pod": f"customers-7d3f1a-acme-{pods[0]}", "tenant": "customers-7d3f1a-acme"}
    status = _status(*guests, startGate={"policy": "enforce", "blocked": [blocked]})
    assert run(monkeypatch, status, width=80)[1].splitlines() == [
        "POD              TENANT           NETWORK  STATE        WHY",
        "payment…8-abcde  custome…1a-acme  blue     unreachable  agent: the guest's agen…",
        "payment…8-fghij  custome…1a-acme  blue     unreachable  agent: the guest's agen…",
        "",
        "BLOCKED                   TENANT                 FOR   WHY",
        "customers-7d…c66b8-abcde  customers-7d3f1a-acme  12 s  waiting: network blue is…",
    ]
    wide = run(monkeypatch, status, "-o", "wide", width=80)[1]
    assert pods[0] in wide
    assert str(AWAY["message"]) in wide


def test_tenant_option_filters_the_guests(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = run(monkeypatch, _status(GOOD, AWAY), "--tenant", "vc-a", "-o", "json")
    assert code == 0
    assert [guest["id"] for guest in json.loads(out)["items"]] == ["0123456789abcdef"]


def test_document_has_the_whole_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this version knows no field for is passed on."""
    guest = GOOD | {"newKey": 1}
    gate = {"policy": "enforce", "blocked": [], "newKey": 2}
    code, out = run(monkeypatch, _status(guest, startGate=gate, pid=7), "-o", "json")
    assert (code, json.loads(out)) == (
        0,
        {
            "apiVersion": "vcnode.io/v1alpha1",
            "kind": "GuestList",
            "items": [guest],
            "status": {"daemon": "kata-bridge", "isSynced": True, "startGate": gate, "pid": 7},
        },
    )


def test_only_hexadecimal_ids_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    _, out = run(monkeypatch, _status(GOOD | {"id": "acme-web-front-0"}), "-o", "wide")
    assert "  acme-web-front-0  " in out.splitlines()[1]


def test_unsynced_kata_bridge_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, _status(isSynced=False)) == (
        1,
        "kata-bridge has not listed the sandboxes of this node yet: guests may be missing\nno guests\n",
    )


def test_another_daemon_is_not_kata_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolError, match="this is vn-agent, not kata-bridge"):
        run(monkeypatch, {"daemon": "vn-agent"}, "--socket", str(Path("/x.sock")))


BLOCKED = {
    "id": "s1",
    "pod": "vc-a-shop/cart",
    "tenant": "vc-a",
    "containers": ["main", "side"],
    "forSeconds": 12.3,
    "message": "waiting: network blue is not Ready (the kubelet tries again)",
}


def test_blocked_pods_report_why_and_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    other = BLOCKED | {"pod": "vc-b-shop/cart", "tenant": "vc-b"}
    status = _status(startGate={"policy": "enforce", "needs": ["rules"], "blocked": [BLOCKED, other]})
    code, out = run(monkeypatch, status, "--tenant", "vc-a")
    assert code == 1
    assert out.splitlines() == [
        "no guests",
        "",
        "BLOCKED         TENANT  FOR   WHY",
        f"vc-a-shop/cart  vc-a    12 s  {BLOCKED['message']}",
    ]
    code, out = run(monkeypatch, status, "--tenant", "vc-a", "-o", "wide")
    assert out.splitlines()[2:] == [
        "BLOCKED         TENANT  CONTAINERS  FOR   WHY",
        f"vc-a-shop/cart  vc-a    main,side   12 s  {BLOCKED['message']}",
    ]
    code, out = run(monkeypatch, status, "--tenant", "vc-a", "-o", "json")
    assert [pod["pod"] for pod in json.loads(out)["status"]["startGate"]["blocked"]] == ["vc-a-shop/cart"]
    assert run(monkeypatch, _status(GOOD, startGate={"policy": "off", "blocked": []}))[0] == 0
    assert run(monkeypatch, _status(GOOD, startGate=None))[0] == 0
