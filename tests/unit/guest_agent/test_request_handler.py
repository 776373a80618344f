# SPDX-License-Identifier: Apache-2.0
"""The result of each request, with a fake packet filter."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from bridge_api import messages
from bridge_api.messages import Capabilities, Flow, Part
from bridge_api.rulesets import to_message
from daemonkit.version import VERSION
from devkit.fake_packet_filter import FakePacketFilter
from guest_agent import state_file
from guest_agent.api.messages import (
    AgentMessage,
    AgentResult,
    AgentResultCode,
    ApplyRuleset,
    CheckDrift,
    FlushConntrack,
    InstalledParts,
    NodeRequest,
    ReadBack,
    RulesetState,
    WriteResolvConf,
)
from guest_agent.kernel.netfilter_socket import NetfilterError
from guest_agent.reconciler import AppliedRuleset, CheckLevel, RulesetReconciler
from guest_agent.request_handler import RequestHandler
from ruleset.delta import difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend

RULE = "-d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.0.%d:80"


def ruleset(generation: int, pod: int) -> Ruleset:
    objects = {"nat/OUTPUT": ("-j VCN-SERVICES",), "nat/VCN-SERVICES": (RULE % pod,)}
    return make_ruleset(generation, [Document(Family.IPV4, Backend.IPTABLES, objects)])


FIRST, SECOND = ruleset(1, 1), ruleset(2, 2)


class HandledGuest:
    """A request handler with fakes and files."""

    def __init__(self, directory: Path) -> None:
        self.filter = FakePacketFilter()
        self.reconciler = RulesetReconciler(self.filter, None)
        self.flushed: list[Flow] = []
        self.flush_error: Exception | None = None
        self.state_path = directory / "state"
        self.resolv_conf = directory / "resolv.conf"
        self.handler = RequestHandler(self.reconciler, self.flush, self.state_path, [self.resolv_conf])

    def flush(self, flows: Iterable[Flow]) -> int:
        if self.flush_error is not None:
            raise self.flush_error
        self.flushed += flows
        return len(self.flushed)

    def call(self, question: NodeRequest) -> AgentResult:
        response = self.handler.handle(question)
        assert response.request_id == question.id
        assert response.result is not None
        return response.result

    def apply(self, message: messages.Ruleset, *flush: Flow) -> AgentResult:
        return self.call(NodeRequest(5, apply=ApplyRuleset(message, flush)))


@pytest.fixture
def guest(tmp_path: Path) -> HandledGuest:
    return HandledGuest(tmp_path)


def state(of: Ruleset, *, has_drifted: bool = False) -> RulesetState:
    return RulesetState(of.generation, of.digest, has_drifted)


def test_capabilities_follow_the_supported_filters(guest: HandledGuest) -> None:
    assert guest.handler.capabilities(guest.filter) == Capabilities(
        "agent", ("iptables",), True, True, True, True, VERSION
    )
    for family in Family:
        guest.filter.missing[(family, Backend.IPTABLES)] = f"no {family.value} tables"
    handler = RequestHandler(guest.reconciler, None, guest.state_path, ())
    assert handler.capabilities(guest.filter) == Capabilities(
        "agent", (), False, True, False, False, VERSION, ipv6_message="no ipv6 tables; no nft here"
    )


def test_a_guest_without_ipv6_reports_why(guest: HandledGuest) -> None:
    """kata-bridge shows the message: `no IPv6 rules: MESSAGE`. What both backends lack is named once."""
    for backend in Backend:
        guest.filter.missing[(Family.IPV6, backend)] = "the guest's kernel has no IPv6"
    assert guest.handler.capabilities(guest.filter) == Capabilities(
        "agent",
        ("iptables",),
        False,
        True,
        True,
        True,
        VERSION,
        ipv6_message="the guest's kernel has no IPv6",
    )


def test_apply_saves_state_then_flushes_flows(guest: HandledGuest) -> None:
    flow = Flow("udp", "10.0.0.1", 80)
    assert guest.apply(to_message(FIRST), flow) == AgentResult(AgentResultCode.DONE, "", state(FIRST))
    assert guest.flushed == [flow]
    assert state_file.read(guest.state_path) == AppliedRuleset(1, FIRST.digest)


def test_a_whole_ruleset_ends_the_flows_to_what_it_lacks(guest: HandledGuest) -> None:
    """Without being asked: a kubeproxy-ext that was restarted does not know the rules before."""

    def udp(generation: int, *ports: int) -> Ruleset:
        lines = tuple(f"-d 10.0.0.1/32 -p udp -m udp --dport {port} -j DROP" for port in ports)
        objects = {"filter/OUTPUT": ("-j VCN-SERVICES",), "filter/VCN-SERVICES": lines}
        return make_ruleset(generation, [Document(Family.IPV4, Backend.IPTABLES, objects)])

    guest.apply(to_message(udp(1, 53, 54)))
    assert guest.flushed == []
    guest.apply(to_message(udp(2, 54)), Flow("udp", "10.0.0.9", 1))
    assert guest.flushed == [Flow("udp", "10.0.0.9", 1), Flow("udp", "10.0.0.1", 53)]


def test_an_unchanged_ruleset_flushes_nothing(guest: HandledGuest) -> None:
    guest.apply(to_message(FIRST))
    again = to_message(make_ruleset(9, FIRST.documents))
    outcome = guest.apply(again, Flow("udp", "10.0.0.1"))
    assert outcome == AgentResult(AgentResultCode.UNCHANGED, "", RulesetState(9, FIRST.digest, False))
    assert guest.flushed == []
    assert state_file.read(guest.state_path) == AppliedRuleset(9, FIRST.digest)


def test_a_delta_of_another_base_needs_full(guest: HandledGuest) -> None:
    delta = difference(FIRST, SECOND)
    assert delta is not None
    outcome = guest.apply(to_message(delta))
    assert outcome.code is AgentResultCode.NEEDS_FULL
    assert outcome.state == RulesetState()
    guest.apply(to_message(FIRST))
    assert guest.apply(to_message(delta)) == AgentResult(AgentResultCode.DONE, "", state(SECOND))


def test_a_refused_result_has_the_line(guest: HandledGuest) -> None:
    guest.apply(to_message(FIRST))
    guest.filter.refused = "10.1.0.2"
    outcome = guest.apply(to_message(SECOND))
    assert outcome.code is AgentResultCode.REFUSED
    assert RULE % 2 in outcome.message
    assert outcome.state == state(FIRST)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"*nat\n:INPUT - [0:0]\nCOMMIT\n", "nat/INPUT"),
        (b"*nat\n:VCN-A - [0:0]\n-A VCN-A -j X --modprobe /bin/sh\nCOMMIT\n", "--modprobe"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_foreign_syntax_never_reaches_the_filter(guest: HandledGuest, text: bytes, expected: str) -> None:
    message = messages.Ruleset(1, "0" * 64, (Part("ipv4", "iptables", text),))
    outcome = guest.apply(message)
    assert outcome.code is AgentResultCode.REFUSED
    assert expected in outcome.message
    assert guest.filter.loaded == []


def test_a_zip_bomb_is_refused_without_inflating(guest: HandledGuest) -> None:
    message = messages.Ruleset(1, "0" * 64, (Part("ipv4", "iptables", b"x", 1 << 40),))
    assert guest.apply(message).code is AgentResultCode.REFUSED


def test_a_missing_program_fails_and_is_not_refused(guest: HandledGuest) -> None:
    guest.filter.missing[(Family.IPV4, Backend.IPTABLES)] = "no iptables-restore in this guest"
    assert guest.apply(to_message(FIRST)) == AgentResult(
        AgentResultCode.FAILED, "no iptables-restore in this guest", RulesetState()
    )
    assert guest.apply(messages.Ruleset()).code is AgentResultCode.REFUSED
    assert guest.call(NodeRequest(1, apply=ApplyRuleset())).code is AgentResultCode.FAILED


def test_failed_flush_and_save_still_apply_rules(guest: HandledGuest) -> None:
    guest.flush_error = NetfilterError("netlink: No such device")
    guest.state_path.mkdir()
    outcome = guest.apply(to_message(FIRST), Flow("udp", "10.0.0.1"))
    assert outcome == AgentResult(AgentResultCode.DONE, "conntrack: netlink: No such device", state(FIRST))
    guest.flush_error = None
    outcome = guest.apply(to_message(SECOND))
    assert outcome.code is AgentResultCode.DONE
    assert "Is a directory" in outcome.message


def test_a_check_reports_drift(guest: HandledGuest) -> None:
    guest.apply(to_message(FIRST))
    assert guest.call(NodeRequest(2, check_drift=CheckDrift())) == AgentResult(
        AgentResultCode.DONE, "", state(FIRST)
    )
    guest.filter.iptables[Family.IPV4].tables["nat"]["VCN-SERVICES"].clear()
    assert guest.call(NodeRequest(3, check_drift=CheckDrift())) == AgentResult(
        AgentResultCode.DONE, "", state(FIRST, has_drifted=True)
    )
    guest.filter.unavailable = "the kernel is gone"
    assert guest.call(NodeRequest(4, check_drift=CheckDrift())).code is AgentResultCode.FAILED


def test_drift_is_reported_once(guest: HandledGuest) -> None:
    guest.apply(to_message(FIRST))
    assert guest.handler.take_report() is None
    rules = guest.filter.iptables[Family.IPV4].tables["nat"]["VCN-SERVICES"]
    rule = rules.pop()
    guest.reconciler.check_drift(CheckLevel.QUICK)
    assert guest.handler.take_report() == AgentMessage(state=state(FIRST, has_drifted=True))
    assert guest.handler.take_report() is None
    rules.append(rule)
    guest.call(NodeRequest(2, check_drift=CheckDrift()))
    assert guest.handler.take_report() is None


def test_read_back_returns_installed_rules(guest: HandledGuest) -> None:
    guest.apply(to_message(FIRST))
    response = guest.handler.handle(NodeRequest(4, read_back=ReadBack()))
    assert response == AgentMessage(request_id=4, installed=InstalledParts(to_message(FIRST).parts))
    guest.filter.iptables[Family.IPV4].tables["nat"]["VCN-SERVICES"].append("-j LOG --log-prefix x")
    response = guest.handler.handle(NodeRequest(5, read_back=ReadBack()))
    assert response.installed is not None
    assert b"-A VCN-SERVICES -j LOG --log-prefix x\n" in response.installed.parts[0].text
    guest.filter.unavailable = "xtables lock"
    assert guest.call(NodeRequest(6, read_back=ReadBack())).code is AgentResultCode.FAILED


def test_flows_are_flushed_on_request(guest: HandledGuest) -> None:
    flow = Flow("udp", "10.0.0.1")
    question = NodeRequest(1, flush_conntrack=FlushConntrack((flow,)))
    assert guest.call(question).code is AgentResultCode.DONE
    assert guest.flushed == [flow]
    guest.flush_error = ValueError("'icmp' is none of tcp, udp, sctp")
    assert guest.call(question) == AgentResult(
        AgentResultCode.REFUSED, "conntrack: 'icmp' is none of tcp, udp, sctp", RulesetState()
    )
    without = RequestHandler(guest.reconciler, None, guest.state_path, ())
    response = without.handle(question)
    assert response.result is not None
    assert response.result.code is AgentResultCode.FAILED


def test_a_circle_of_links_fails(guest: HandledGuest) -> None:
    guest.resolv_conf.symlink_to(guest.resolv_conf)
    outcome = guest.call(NodeRequest(1, write_resolv_conf=WriteResolvConf("nameserver 10.0.0.10\n")))
    assert outcome.code is AgentResultCode.FAILED
    assert "too many links" in outcome.message


def test_resolv_confs_are_written(guest: HandledGuest) -> None:
    question = NodeRequest(1, write_resolv_conf=WriteResolvConf("nameserver 10.0.0.10\n"))
    assert guest.call(question).code is AgentResultCode.DONE
    assert guest.resolv_conf.read_text() == "nameserver 10.0.0.10\n"
    assert guest.call(question).code is AgentResultCode.UNCHANGED
    assert guest.call(NodeRequest(2, write_resolv_conf=WriteResolvConf("\0"))).code is AgentResultCode.REFUSED
    guest.resolv_conf.unlink()
    guest.resolv_conf.mkdir()
    assert guest.call(question).code is AgentResultCode.FAILED


def test_an_unknown_request_fails(guest: HandledGuest) -> None:
    outcome = guest.call(NodeRequest(1))
    assert outcome.code is AgentResultCode.FAILED
    assert "may be older than kata-bridge" in outcome.message


def test_adopted_rules_are_saved_at_start(tmp_path: Path) -> None:
    """A restarted container has lost its files, and its startup probe looks for this one."""
    guest = HandledGuest(tmp_path)
    assert not guest.state_path.exists()
    guest.reconciler.apply(FIRST)
    RequestHandler(RulesetReconciler(guest.filter, None), None, guest.state_path, [])
    assert state_file.read(guest.state_path) == AppliedRuleset(0, FIRST.digest)
