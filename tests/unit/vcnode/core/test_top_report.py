# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from vcnode.core.guests_report import BlockedPod, BridgeStatus, GuestStatus, StartGateStatus
from vcnode.core.top_report import (
    MAX_TENANTS,
    DaemonReading,
    NodeReading,
    ProcessUsage,
    TenantCounters,
    as_json,
    compare,
    render,
    tenant_counters,
)
from vcnode.terminal import Style, Styled

AGENT = DaemonReading("vn-agent", is_ready=True, started_at=1000.0, usage=ProcessUsage(4.0, 31_400_000, 40))
BRIDGE = BridgeStatus(
    "kata-bridge",
    guests=(
        GuestStatus("g1", "vc-a/web", "current", tenant="a"),
        GuestStatus("g2", "vc-a/new", "unreachable", tenant="a"),
        GuestStatus("g3", "vc-b/web", "noRuleset", tenant="b"),
    ),
    start_gate=StartGateStatus(blocked=(BlockedPod("vc-c/first", tenant="c"),)),
)
BEFORE = NodeReading(10.0, 2000.0, (AGENT,), {"a": TenantCounters(100, 5, 1_000_000)}, BRIDGE)
AFTER = NodeReading(
    12.0,
    2002.0,
    (replace(AGENT, usage=ProcessUsage(4.5, 31_400_000, 41)),),
    {"a": TenantCounters(140, 6, 5_000_000), "b": TenantCounters(2, 0, 300)},
    BRIDGE,
)


def test_counters_are_those_of_vn_agent_by_tenant() -> None:
    samples = [
        ("vcnode_vnagent_requests_total", {"tenant": "a", "endpoint": "logs", "code": "200"}, 7.0),
        ("vcnode_vnagent_requests_total", {"tenant": "a", "endpoint": "logs", "code": "404"}, 2.0),
        ("vcnode_vnagent_requests_total", {"tenant": "b", "endpoint": "exec", "code": "101"}, 1.0),
        ("vcnode_vnagent_sent_bytes_total", {"tenant": "a"}, 900.0),
        ("vcnode_vnagent_tunnels", {}, 3.0),
    ]
    assert tenant_counters(samples) == {"a": TenantCounters(9, 2, 900), "b": TenantCounters(1, 0, 0)}


def test_rates_are_of_the_time_between_two_readings() -> None:
    assert render(compare(BEFORE, AFTER)) == [
        "DAEMON    STATE  CPU     MEMORY   FILES  UP",
        "vn-agent  ready  25.0 %  31.4 MB  41     16 min 42 s",
        "",
        "TENANT  REQ/s  FAILED/s  SENT/s  GUESTS  BEHIND  BLOCKED",
        "a       20.0   0.5       2.0 MB  2       1       0",
        "b       1.0    0.0       150 B   1       0       0",
        "c       -      -         -       0       0       1",
    ]


def test_counters_of_a_new_process_begin_at_zero() -> None:
    restarted = replace(AGENT, started_at=2001.0, usage=ProcessUsage(0.2, 20_000_000))
    after = replace(AFTER, daemons=(restarted,), counters={"a": TenantCounters(10, 0, 400)})
    use = compare(BEFORE, after)
    (row,) = use.daemons
    assert (row.cores, row.up_s) == (0.1, 1.0)
    assert (use.tenants[0].requests, use.tenants[0].sent_bytes) == (5.0, 200.0)


def test_what_is_unknown_is_no_zero() -> None:
    """Without vn-agent no rate, without kata-bridge no guest, without psutil no CPU."""
    unknown = DaemonReading("vn-agent", is_ready=False)
    use = compare(replace(BEFORE, daemons=()), replace(AFTER, daemons=(unknown,), bridge=None))
    assert render(use)[1] == "vn-agent  NOT READY  -    -       -      -"
    assert as_json(use)["daemons"][0]["cpuCores"] is None
    assert as_json(use)["tenants"][0]["guests"] is None
    use = compare(replace(BEFORE, counters=None), AFTER)
    assert {row.requests for row in use.tenants} == {None}


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ((AGENT,), True),
        ((AGENT, replace(AGENT, is_ready=False)), False),
        ((AGENT, DaemonReading("/run/x.sock", problem="connection refused")), None),
    ],
)
def test_verdict_by_the_daemons(readings: tuple[DaemonReading, ...], verdict: bool | None) -> None:
    assert compare(BEFORE, replace(AFTER, daemons=readings)).verdict is verdict


def test_problems_are_coloured() -> None:
    silent = DaemonReading("/run/x.sock", problem="connection refused")
    lines = render(compare(BEFORE, replace(AFTER, daemons=(silent,))))
    assert lines[1] == "/run/x.sock  SILENT  -    -       -      connection refused"
    assert isinstance(lines[1], Styled)
    assert [style for _, _, style in lines[1].spans] == [Style.BAD]
    assert isinstance(lines[4], Styled)
    assert [style for _, _, style in lines[4].spans] == [Style.WARNING, Style.WARNING]


def test_tenants_with_least_traffic_are_left_out() -> None:
    counters = {f"t{number:02}": TenantCounters(number, 0, 0) for number in range(MAX_TENANTS + 5)}
    use = compare(replace(BEFORE, counters={}), replace(AFTER, counters=counters, bridge=None))
    lines = render(use)
    assert lines[4].startswith("t24 ")
    assert lines[-1] == "5 more tenants with less traffic: -o wide"
    assert len(render(use, is_wide=True)) == len(lines) + 4


def test_lines_fit_the_width() -> None:
    counters = {f"tenant-{number}-70b001-production-of-a-long-name": TenantCounters(1) for number in range(3)}
    use = compare(BEFORE, replace(AFTER, counters=counters))
    assert max(map(len, render(use, 80))) <= 80
