# SPDX-License-Identifier: Apache-2.0
"""Which guests get a push: full or delta, several guests in a request, unchanged guests none."""

from typing import Any

import pytest

from bridge_api.messages import Capabilities, GuestResult, ResultCode
from kubeproxy_ext.delivery.in_flight import BARRIER_S
from kubeproxy_ext.delivery.queue import RulesetDelivery, RulesetPush
from ruleset.delta import RulesetDelta, apply_delta
from ruleset.document import Ruleset
from tests.unit.kubeproxy_ext.delivery.queues import (
    ONE,
    THREE,
    TWO,
    applied,
    delivery,
    desired,
    guest,
    report,
)


def test_new_guest_gets_the_whole_ruleset_once() -> None:
    made = delivery("g1")
    assert made.take_due(0.0) == (RulesetPush(("g1",), ONE.ruleset, ()),)
    assert made.take_due(0.0) == ()
    assert made.next_at is None
    report(made, RulesetPush(("g1",), ONE.ruleset, ()), ResultCode.APPLIED, 1.0)
    assert not made.guests["g1"].is_behind
    assert made.take_due(1e9) == ()


def test_request_has_guests_of_one_tenant_only() -> None:
    made = delivery("g1", "g2")
    made.on_guest(guest("g3", tenant="b"), 0.0)
    made.set_desired("g3", ONE, 0.0)
    assert [push.guests for push in made.take_due(0.0)] == [("g1", "g2"), ("g3",)]


def test_change_is_a_delta_from_the_applied_ruleset() -> None:
    made = delivery("g1", "g2", "g3")
    applied(made)
    made.on_guest(guest("g3", ONE.digest, capabilities=Capabilities(backends=("iptables",))), 0.0)
    made.on_guest(guest("g4"), 0.0)
    for name in ("g1", "g2", "g3", "g4"):
        made.set_desired(name, TWO, 1.0)
    delta, whole = made.take_due(1.0)
    assert delta.guests == ("g1", "g2")
    assert isinstance(delta.ruleset, RulesetDelta)
    assert apply_delta(ONE.ruleset, delta.ruleset) == TWO.ruleset
    # The third does not support deltas, the fourth has no rules.
    assert (whole.guests, whole.ruleset) == (("g3", "g4"), TWO.ruleset)


def test_large_delta_is_sent_whole() -> None:
    made = delivery("g1")
    applied(made)
    made.set_desired("g1", desired(2, *range(9000, 9008)), 1.0)
    (push,) = made.take_due(1.0)
    assert isinstance(push.ruleset, Ruleset)


def test_change_in_flight_waits_for_the_result() -> None:
    made = delivery("g1")
    applied(made)
    made.set_desired("g1", TWO, 1.0)
    (first,) = made.take_due(1.0)
    made.set_desired("g1", THREE, 1.0)
    assert made.take_due(1.0) == ()
    report(made, first, ResultCode.APPLIED, 2.0)
    (second,) = made.take_due(2.0)
    assert isinstance(second.ruleset, RulesetDelta)
    assert (second.ruleset.base_digest, second.ruleset.digest) == (TWO.digest, THREE.digest)


def test_guests_of_a_batch_share_the_next_request() -> None:
    made = delivery("g1", "g2", "g3")
    applied(made)
    for name in made.guests:
        made.set_desired(name, TWO, 1.0)
    (push,) = made.take_due(1.0)
    for name in made.guests:
        made.set_desired(name, THREE, 1.0)
    made.on_result(push, GuestResult("g1", ResultCode.APPLIED), 2.0)
    assert not made.is_waiting_for_batch("g1")  # take_due plans, and sets the time
    assert made.take_due(2.0) == ()
    assert made.next_at == 2.0 + BARRIER_S
    assert made.is_waiting_for_batch("g1")
    made.on_result(push, GuestResult("g2", ResultCode.APPLIED), 2.01)
    assert made.is_waiting_for_batch("g2")
    assert made.take_due(2.01) == ()
    made.on_result(push, GuestResult("g3", ResultCode.APPLIED), 2.02)
    assert not made.is_waiting_for_batch("g3")
    assert [each.guests for each in made.take_due(2.02)] == [("g1", "g2", "g3")]
    assert made.next_at is None


def test_barrier_has_a_time_limit() -> None:
    made = delivery("g1", "slow")
    (push,) = made.take_due(0.0)
    for name in made.guests:
        made.set_desired(name, TWO, 0.0)
    made.on_result(push, GuestResult("g1", ResultCode.APPLIED), 1.0)
    assert made.take_due(1.0) == ()
    (second,) = made.take_due(1.0 + BARRIER_S)
    assert second.guests == ("g1",)
    report(made, second, ResultCode.APPLIED, 2.0)
    made.set_desired("g1", THREE, 2.0)
    assert [each.guests for each in made.take_due(2.0)] == [("g1",)]


def test_applied_ruleset_is_submitted_once_per_session() -> None:
    made = RulesetDelivery()
    made.on_guest(guest("g1", ONE.digest), 0.0)
    made.set_desired("g1", ONE, 0.0)
    assert not made.guests["g1"].is_behind
    (push,) = made.take_due(0.0)
    assert (push.ruleset, push.flush) == (ONE.ruleset, ())
    report(made, push, ResultCode.UNCHANGED)
    assert made.take_due(1e9) == ()


@pytest.mark.parametrize("fields", [{"capabilities": None}, {"not_injectable": "policy"}])
def test_unreachable_guest_is_sent_nothing(fields: dict[str, Any]) -> None:
    made = RulesetDelivery()
    made.on_guest(guest("g1", **fields), 0.0)
    made.set_desired("g1", ONE, 0.0)
    assert made.take_due(0.0) == ()
    made.on_guest(guest("g1"), 0.0)
    assert made.take_due(0.0) != ()


def test_guest_without_desired_ruleset_keeps_its_rules() -> None:
    made = delivery("g1")
    applied(made)
    made.set_desired("g1", None, 1.0)
    assert made.take_due(1e9) == ()
    assert not made.guests["g1"].is_behind
