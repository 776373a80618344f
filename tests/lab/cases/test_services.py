# SPDX-License-Identifier: Apache-2.0
"""Service cases on live kernels: wrong rules fail, and nothing is left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ruleset.model import Protocol
from ruleset.names import Backend
from ruletrace.packet import Packet, PacketVerdict
from tests.cases.services import evaluations, rendering
from tests.cases.services.evaluations import LiveKernels, render
from tests.cases.services.filters import FILTERS, KernelFilter
from tests.cases.services.kernel_probes import probe_failures
from tests.cases.services.lab import Lab
from tests.cases.services.load import read
from tests.cases.services.packet_checks import PacketCheck, checks_of_flow, endpoint
from tests.cases.services.rendering import RenderedGuest
from tests.cases.services.responder import Responder

CASES = """\
world: {pod_cidr: 10.0.0.0/8}
flows:
- id: F
  services:
  - {svc: ns/two, vip: [172.30.0.41], ports: [{name: p, port: 80}, {name: s, proto: SCTP, port: 80}]}
  - {svc: ns/none, vip: [172.30.0.42], ports: [{name: p, port: 80}]}
  - svc: ns/out
    vip: [172.30.0.43]
    lb: [{ip: 1.2.3.4}]
    lb_ranges: [192.0.2.0/24]
    ports: [{name: p, port: 80}]
  - {svc: ns/sticky, vip: [172.30.0.44], affinity: 60, ports: [{name: p, port: 80}]}
  slices:
  - svc: ns/two
    ports: [{name: p, port: 8080}, {name: s, proto: SCTP, port: 8080}]
    eps: [{ip: 10.1.0.3}, {ip: 10.1.0.4}]
  - {svc: ns/out, ports: [{name: p, port: 8080}], eps: [{ip: 10.1.0.3}]}
  - {svc: ns/sticky, ports: [{name: p, port: 8080}], eps: [{ip: 10.1.0.3}, {ip: 10.1.0.4}]}
  checks:
  - [two, 10.0.0.2, TCP, 172.30.0.41, 80, ["10.1.0.3:8080", "10.1.0.4:8080"], false]
  - [two SCTP, 10.0.0.2, SCTP, 172.30.0.41, 80, ["10.1.0.3:8080", "10.1.0.4:8080"], false]
  - [none, 10.0.0.2, TCP, 172.30.0.42, 80, reject, false]
  - [out, 10.0.0.2, TCP, 1.2.3.4, 80, drop, false]
  - [sticky, 10.0.0.2, TCP, 172.30.0.44, 80, ["10.1.0.3:8080", "10.1.0.4:8080"], false]
"""


@pytest.fixture
def kernel() -> Iterator[LiveKernels]:
    made = LiveKernels()
    yield made
    made.close()


def live_failures(kernel: LiveKernels, filter_: KernelFilter, path: Path, only: str = "") -> list[str]:
    """The failures of the group above on a live kernel."""
    path.write_text(CASES, encoding="utf-8")
    flow = read(path).flows[0]
    guest_checks = checks_of_flow(flow.checks, flow.state, read(path).node_origin)
    ((pod, packet_checks),) = guest_checks.packet_checks.items()
    rendered = render(rendering.objects_list(flow.state, "test-node"), RenderedGuest(pod, "test-node"))
    expected = [packet_check for packet_check in packet_checks if packet_check.name.startswith(only)]
    return [failure for failure in kernel.evaluate(rendered, expected, filter_) if ", live: " in failure]


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda one: one.name)
def test_correct_rules_pass_every_engine(filter_: KernelFilter, kernel: LiveKernels, tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert live_failures(kernel, filter_, tmp_path / "it.yaml") == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("number", "old", "new", "only", "expected"),
    [
        (0, "-p tcp -j DNAT --to-destination 10.1.0.4:8080", "-p tcp -j RETURN", "two", "two: pass, not"),
        (0, "10.1.0.4:8080", "10.1.0.4:80", "two", "two: 10.1.0.4:80, not"),
        (1, "--probability 0.5000000000", "--probability 1", "two", "two: 10.1.0.3:8080, not"),
        (1, "-p sctp -m sctp --dport 80", "-p sctp -m sctp --dport 81", "two S", "two SCTP: pass, not"),
        (1, "icmp-port-unreachable", "icmp-host-unreachable", "none", "none: unreach"),
        (0, "-j DROP", "-j REJECT", "out", "out: reject, not drop"),
        (0, "-d 1.2.3.4/32", "-d 1.2.3.5/32", "out", "out: pass, not drop"),
        (0, "-m recent --rcheck", "-m recent ! --rcheck", "sticky", "sticky: "),
        (2, "mod 2 map { 0 : 10.1.0.3 . 8080, 1 :", "mod 1 map { 0 :", "two", "two: 10.1.0.4:8080, not"),
        (2, "goto refuse", "accept", "none", "none: pass, not reject"),
        (2, "1.2.3.4 . tcp . 80 : drop", "1.2.3.4 . tcp . 80 : goto refuse", "out", "out: reject, not drop"),
        (2, "ip saddr @", "ip daddr @", "sticky", "sticky: affinity: "),
    ],
)
def test_wrong_rules_fail_every_engine(
    number: int,
    old: str,
    new: str,
    only: str,
    expected: str,
    kernel: LiveKernels,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def spoilt(data: bytes, guest: RenderedGuest, backend: Backend) -> str:
        text = rendering.text_for(data, guest, backend)
        if backend is FILTERS[number].backend:
            assert old in text
            return text.replace(old, new)
        return text

    monkeypatch.setattr(evaluations, "text_for", spoilt)
    assert expected in "\n".join(live_failures(kernel, FILTERS[number], tmp_path / "it.yaml", only))


def test_unanswered_packet_counts_as_not_dropped() -> None:
    """The packet left the guest, unlike one that a DROP rule matches."""
    responder = Responder()
    lab = Lab(responder, "10.0.0.2", [80], "nft")
    try:
        packet = Packet("10.0.0.2", Protocol.TCP, "1.2.3.4", 81)
        assert probe_failures(lab, PacketCheck("silent", packet, frozenset({PacketVerdict.DROP}))) == [
            "unanswered"
        ]
    finally:
        lab.close()
        responder.close()


def test_wrong_source_address_fails_the_check() -> None:
    responder = Responder()
    lab = Lab(responder, "10.0.0.2", [80], "nft")
    masquerade = "table ip m { chain c { type nat hook postrouting priority 100; snat to 10.0.0.9; }; }\n"
    try:
        lab.outside.run("ip", "route", "add", "10.0.0.9/32", "dev", "eth0")
        lab.outside.run("ip", "neigh", "add", "10.0.0.9", "lladdr", "02:00:00:00:00:01", "dev", "eth0")
        lab.guest.run("nft", "-f", "-", text=masquerade)
        packet = Packet("10.0.0.2", Protocol.TCP, "1.2.3.4", 80)
        expected = PacketCheck("rewritten", packet, frozenset({endpoint("1.2.3.4:80")}))
        assert probe_failures(lab, PacketCheck("it", packet, frozenset({PacketVerdict.PASS}))) == [
            "1.2.3.4:80 saw 10.0.0.9, not 10.0.0.2"
        ]
        assert probe_failures(lab, expected) == ["pass, not 1.2.3.4:80"]
    finally:
        lab.close()
        responder.close()
