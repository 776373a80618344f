# SPDX-License-Identifier: Apache-2.0
import pytest

from vcnode.core.doctor_daemons import findings
from vcnode.core.doctor_facts import DaemonAnswer, DoctorFacts, DoctorGuest, DoctorPage
from vcnode.core.status_report import BadTenant


def answer(page: DoctorPage | None = None, *, problem: str = "", is_ready: bool = True) -> DaemonAnswer:
    name = "kata-bridge" if page is None else page.daemon
    return DaemonAnswer(name, "/run/s.sock", problem, is_ready, ("nri: not connected",), page, "1.0.0")


def bridge(*guests: DoctorGuest, runtime: str = "", gate: bool = False) -> DaemonAnswer:
    page = DoctorPage("kata-bridge", runtime=runtime, guests=guests, start_gate={} if gate else None)
    return answer(page)


def shown(given: DaemonAnswer, version: str = "1.0.0") -> list[tuple[str, str]]:
    found = list(findings(DoctorFacts(version, daemons=(given,))))
    assert all(each.remedy for each in found)
    return [(each.check, each.message) for each in found]


def guest(**values: object) -> DoctorGuest:
    return DoctorGuest("a-shop/web", "a", "shop/web", **values)  # type: ignore[arg-type] # of its fields


BAD = BadTenant("t.yaml", "ten-b", "no certificate in it", keeps_last_good_state=True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (answer(), []),
        (
            answer(problem="connection refused"),
            [("daemon", "kata-bridge does not answer at /run/s.sock: connection refused")],
        ),
        (answer(is_ready=False), [("readiness", "kata-bridge is not ready: nri: not connected")]),
        (
            answer(DoctorPage("vn-agent", bad_tenants=(BAD,))),
            [
                (
                    "tenant",
                    "vn-agent: t.yaml (tenant ten-b): no certificate in it; its last good state is served",
                )
            ],
        ),
        (
            bridge(guest(state="notInjectable", message="policy denies SetIPTablesRequest")),
            [("guest", "guest shop/web of a: takes no rules: policy denies SetIPTablesRequest")],
        ),
        (
            bridge(guest(state="unreachable", message="no agent", behind_seconds=90.0)),
            [("guest", "guest shop/web of a: unreachable for 1 min 30 s: no agent")],
        ),
        (bridge(guest(state="unreachable", message="no agent", behind_seconds=30.0)), []),
        (
            bridge(*[guest(state="notInjectable", message="no")] * 9),
            [("guest", "guest shop/web of a: takes no rules: no")] * 8
            + [("guest", "1 more guests lack rules")],
        ),
        (
            bridge(guest(state="current", channel="agent", version="0.9.3")),
            [("version", "guest shop/web of a: its agent has version 0.9.3, kata-bridge 1.0.0")],
        ),
        (bridge(guest(state="current", channel="agent", version="1.0.7")), []),
        (bridge(guest(state="current", channel="stock", version="3.2.0")), []),
        (
            bridge(runtime="containerd v2.1.4", gate=True),
            [
                (
                    "version",
                    "containerd v2.1.4: a container starts if the start gate answers too late; 2.2 denies it",
                )
            ],
        ),
        (bridge(runtime="containerd 2.2.0", gate=True), []),
        (bridge(runtime="containerd 1.7.1"), []),
        (bridge(runtime="cri-o 1.30", gate=True), []),
    ],
)
def test_what_a_daemon_reports_gives_findings(given: DaemonAnswer, expected: list[tuple[str, str]]) -> None:
    assert shown(given) == expected


def test_a_daemon_of_another_version_is_found() -> None:
    assert shown(answer(), "1.1.0") == [("version", "kata-bridge runs version 1.0.0; 1.1.0 is installed")]
