# SPDX-License-Identifier: Apache-2.0
"""Which flows are flushed in a guest, and when: those that a change of its rules makes stale."""

from bridge_api.messages import Capabilities, ResultCode
from kubeproxy_ext.compute.stale_flows import StaleFlow
from kubeproxy_ext.delivery.queue import RulesetDelivery
from ruleset.model import Protocol
from tests.unit.kubeproxy_ext.delivery.queues import ONE, applied, delivery, desired, guest, report

UDP_ONE = desired(1, protocol=Protocol.UDP)
UDP_TWO = desired(2, 9000, protocol=Protocol.UDP)


def test_stale_flows_are_sent_with_their_change() -> None:
    made = delivery("g1", set_desired=UDP_ONE)
    (first,) = applied(made)
    assert first.flush == ()
    made.set_desired("g1", UDP_TWO, 1.0)
    (push,) = made.take_due(1.0)
    keep = ("10.0.0.1:9000", "10.0.0.2:9000")
    assert push.flush == (StaleFlow(Protocol.UDP, "10.96.0.0", 80, keep_replies_from=keep),)


def test_flows_of_a_failed_push_are_sent_again() -> None:
    made = delivery("g1", set_desired=UDP_ONE)
    applied(made)
    made.set_desired("g1", UDP_TWO, 1.0)
    (push,) = made.take_due(1.0)
    report(made, push, ResultCode.UNREACHABLE, 1.0)
    made.set_desired("g1", UDP_ONE, 2.0)
    made.set_desired("g1", desired(4, 9002, protocol=Protocol.UDP), 2.0)
    (again,) = made.take_due(2.0)
    assert [flow.destination for flow in again.flush] == ["10.96.0.0"]


def test_flows_are_flushed_without_a_rule_change() -> None:
    made = delivery("g1", set_desired=UDP_ONE)
    applied(made)
    fewer = desired(1, protocol=Protocol.UDP, serving=1)
    assert fewer.digest == UDP_ONE.digest
    made.set_desired("g1", fewer, 1.0)
    (push,) = made.take_due(1.0)
    assert push.ruleset is None
    assert push.flush == (StaleFlow(Protocol.UDP, "10.96.0.0", 80, keep_replies_from=("10.0.0.1:8000",)),)
    assert made.take_due(1.0) == ()
    report(made, push, ResultCode.APPLIED, 1.0)
    assert made.take_due(1e9) == ()


def test_guest_without_conntrack_gets_no_flows() -> None:
    made = RulesetDelivery()
    made.on_guest(guest("g1", capabilities=Capabilities(backends=("iptables",), deltas=True)), 0.0)
    made.set_desired("g1", UDP_ONE, 0.0)
    applied(made)
    made.set_desired("g1", UDP_TWO, 1.0)
    (push,) = made.take_due(1.0)
    assert push.flush == ()


def test_guest_with_unknown_rules_gets_all_flows() -> None:
    made = RulesetDelivery()
    made.on_guest(guest("g1", "of-another-time"), 0.0)
    made.set_desired("g1", UDP_ONE, 0.0)
    (push,) = made.take_due(0.0)
    assert [flow.destination for flow in push.flush] == [f"10.96.0.{number}" for number in range(8)]


def test_after_a_restart_udp_flows_are_judged() -> None:
    """An endpoint may have ended while kubeproxy-ext did not run, without a change of rules."""
    made = RulesetDelivery()
    made.on_guest(guest("g1", digest=UDP_ONE.digest), 0.0)
    made.set_desired("g1", UDP_ONE, 0.0)
    (push,) = made.take_due(0.0)
    flows = push.flush
    keep = ("10.0.0.1:8000", "10.0.0.2:8000")
    assert flows[0] == StaleFlow(Protocol.UDP, "10.96.0.0", 80, keep_replies_from=keep)
    assert [flow.destination for flow in flows] == [f"10.96.0.{number}" for number in range(8)]
    # The guest holds the ruleset, so it does nothing: the flows are flushed by themselves, once.
    report(made, push, ResultCode.UNCHANGED, 0.0)
    (again,) = made.take_due(0.0)
    assert (again.ruleset, again.flush) == (None, flows)
    report(made, again, ResultCode.APPLIED, 0.0)
    assert made.take_due(1e9) == ()


def test_after_a_restart_tcp_flows_of_unchanged_rules_stay() -> None:
    made = RulesetDelivery()
    tcp = desired(1)
    made.on_guest(guest("g1", digest=tcp.digest), 0.0)
    made.set_desired("g1", tcp, 0.0)
    (push,) = made.take_due(0.0)
    assert push.flush == ()


def test_a_change_during_a_push_flushes_its_flows() -> None:
    made = delivery("g1", set_desired=UDP_ONE)
    (first,) = made.take_due(0.0)
    made.set_desired("g1", ONE, 0.5)
    report(made, first, ResultCode.APPLIED, 1.0)
    (second,) = made.take_due(1.0)
    udp = [flow.destination for flow in second.flush if flow.protocol is Protocol.UDP]
    assert udp == [f"10.96.0.{number}" for number in range(8)]


def test_a_change_while_a_flush_is_in_flight_is_flushed_after_it() -> None:
    made = delivery("g1", set_desired=UDP_ONE)
    applied(made)
    made.set_desired("g1", desired(1, protocol=Protocol.UDP, serving=1), 1.0)
    (flush,) = made.take_due(1.0)
    made.set_desired("g1", desired(1, protocol=Protocol.UDP, serving=2), 1.5)
    report(made, flush, ResultCode.APPLIED, 2.0)
    (again,) = made.take_due(2.0)
    assert again.flush == (StaleFlow(Protocol.UDP, "10.96.0.0", 80),)
