# SPDX-License-Identifier: Apache-2.0
"""Which pushes are repeated, and when: after failures, failed requests and lost connections."""

import pytest

from bridge_api.messages import Capabilities, GuestResult, ResultCode
from kubeproxy_ext.delivery.queue import REFUSED_RETRY_S, RESEND_S, RETRY_S, RulesetPush
from tests.unit.kubeproxy_ext.delivery.queues import ONE, TWO, applied, delivery, guest, report


def test_needs_full_is_followed_by_the_full_ruleset() -> None:
    made = delivery("g1")
    applied(made)
    made.set_desired("g1", TWO, 1.0)
    (push,) = made.take_due(1.0)
    report(made, push, ResultCode.NEEDS_FULL, 1.0, digest="other")
    (again,) = made.take_due(1.0)
    assert (again.guests, again.ruleset) == (("g1",), TWO.ruleset)


@pytest.mark.parametrize(
    ("code", "again_s"),
    [
        (ResultCode.UNREACHABLE, RESEND_S),
        (ResultCode.REFUSED, REFUSED_RETRY_S),
        (ResultCode.NOT_INJECTABLE, RESEND_S),
        (ResultCode.GONE, RESEND_S),
        (ResultCode.SUPERSEDED, RETRY_S),
        (ResultCode(99), RESEND_S),
    ],
)
def test_failed_guest_is_left_to_kata_bridge_for_a_time(code: ResultCode, again_s: float) -> None:
    made = delivery("g1")
    (push,) = made.take_due(0.0)
    report(made, push, code, 10.0, text="line 3")
    assert made.guests["g1"].problem == f"{code.name}: line 3"
    assert made.next_at == 10.0 + again_s
    assert made.take_due(9.0 + again_s) == ()
    assert made.take_due(10.0 + again_s) == (RulesetPush(("g1",), ONE.ruleset, ()),)


def test_newer_ruleset_is_sent_before_the_retry_time() -> None:
    made = delivery("g1")
    (push,) = made.take_due(0.0)
    report(made, push, ResultCode.REFUSED, 0.0)
    made.set_desired("g1", TWO, 1.0)
    (again,) = made.take_due(1.0)
    assert again.ruleset == TWO.ruleset
    report(made, again, ResultCode.APPLIED, 1.0)
    assert made.guests["g1"].problem == ""


def test_failed_request_is_repeated_whole() -> None:
    made = delivery("g1", "g2")
    applied(made)
    made.set_desired("g1", TWO, 1.0)
    made.set_desired("g2", TWO, 1.0)
    (push,) = made.take_due(1.0)
    made.on_result(push, GuestResult("g1", ResultCode.APPLIED), 1.0)
    made.on_failure(push, ("g2", "unknown"), 1.0, is_refused=False)
    assert made.take_due(1.0) == ()
    assert made.take_due(1.0 + RETRY_S) == (RulesetPush(("g2",), TWO.ruleset, ()),)


def test_rejected_request_is_retried_late() -> None:
    made = delivery("g1")
    (push,) = made.take_due(0.0)
    made.on_failure(push, push.guests, 0.0, is_refused=True)
    assert made.take_due(REFUSED_RETRY_S - 1) == ()
    assert made.take_due(REFUSED_RETRY_S) != ()


def test_lost_rules_are_left_to_kata_bridge_for_a_time() -> None:
    made = delivery("g1")
    applied(made)
    made.on_guest(guest("g1", ""), 5.0)
    assert made.take_due(5.0) == ()
    assert made.guests["g1"].behind_since == 5.0
    assert made.take_due(5.0 + RESEND_S) == (RulesetPush(("g1",), ONE.ruleset, ()),)


def test_new_channel_resets_the_retry_time() -> None:
    made = delivery("g1")
    (push,) = made.take_due(0.0)
    report(made, push, ResultCode.REFUSED, 0.0)
    made.on_guest(guest("g1", capabilities=Capabilities(channel="shim", backends=("iptables",))), 1.0)
    assert made.guests["g1"].problem == ""
    assert made.take_due(1.0) != ()


def test_new_session_resubmits_all_and_drops_missing_guests() -> None:
    made = delivery("g1", "g2")
    applied(made)
    made.set_desired("g1", TWO, 1.0)
    made.take_due(1.0)
    made.on_disconnect()
    made.on_guest(guest("g1", ONE.digest), 2.0)
    assert made.on_synced() == ("g2",)
    assert made.on_synced() == ()
    assert list(made.guests) == ["g1"]
    # The delta's result is unknown. The full ruleset is right in any case.
    assert made.take_due(2.0) == (RulesetPush(("g1",), TWO.ruleset, ()),)


def test_guest_reported_empty_after_reconnect_is_pushed() -> None:
    made = delivery("g1")
    applied(made)
    made.on_disconnect()
    made.on_guest(guest("g1", ""), 2.0)
    assert made.take_due(2.0) == (RulesetPush(("g1",), ONE.ruleset, ()),)


def test_results_of_removed_guests_are_ignored() -> None:
    made = delivery("g1")
    (push,) = made.take_due(0.0)
    made.on_guest_gone("g1")
    report(made, push, ResultCode.APPLIED)
    made.on_failure(push, push.guests, 0.0, is_refused=False)
    assert made.guests == {}
    assert made.next_at is None
