# SPDX-License-Identifier: Apache-2.0
"""What is sent to whom, and when again: tables of what happened and what follows from it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kata_bridge.api.messages import Capabilities, Guest, GuestResult, ResultCode
from kubeproxy_ext.core.conntrack import StaleFlow
from kubeproxy_ext.core.convoy import HOLD_S
from kubeproxy_ext.core.view import Outcome, Serving
from kubeproxy_ext.delivery import AGAIN_S, REFUSED_AGAIN_S, RESEND_S, Delivery, Push, Wanted
from ruleset.delta import NotTheBase, RulesetDelta, apply_delta
from ruleset.document import Ruleset, make_ruleset
from ruleset.iptables.render import render
from ruleset.model import Capture, Endpoint, Family, GuestRules, Protocol, ServiceRules, Target

CAPABLE = Capabilities(channel="agent", backends=("iptables",), deltas=True, conntrack=True)


def wanted(generation: int, *ports: int, protocol: Protocol = Protocol.TCP, serving: int = 0) -> Wanted:
    """Eight Services whose endpoints have the ports 8000 and so on, but for the first ones."""
    numbers = [*ports, *range(8000 + len(ports), 8008)]
    services = []
    for number, port in enumerate(numbers):
        ends = (Endpoint("10.0.0.1", port), Endpoint("10.0.0.2", port))
        target = Target(f"ns/s{number}:p", protocol, is_local=False, endpoints=ends)
        capture = Capture(f"10.96.0.{number}", 80, protocol, f"ns/s{number}:p", target)
        services.append(ServiceRules(f"ns/s{number}", (capture,)))
    rules = GuestRules(Family.IPV4, tuple(services))
    ends = (Endpoint("10.0.0.1", numbers[0]), Endpoint("10.0.0.2", numbers[0]))
    serves = (Serving("ns/s0:p", protocol, ends[: 2 - serving]),)
    return Wanted(make_ruleset(generation, [render(rules)]), (Outcome(rules, serves),))


ONE, TWO, THREE = wanted(1), wanted(2, 9000), wanted(3, 9001)


def guest(name: str, digest: str = "", tenant: str = "a", **fields: Any) -> Guest:
    known: dict[str, Any] = {"id": name, "tenant": tenant, "digest": digest, "capabilities": CAPABLE}
    return Guest(**(known | fields))


def delivery(*names: str, want: Wanted = ONE) -> Delivery:
    made = Delivery()
    for name in names:
        made.present(guest(name), 0.0)
        made.want(name, want, 0.0)
    return made


def answer(
    made: Delivery, push: Push, code: ResultCode, now: float = 0.0, digest: str = "", text: str = ""
) -> None:
    for name in push.guests:
        made.answered(push, GuestResult(name, code, text, 0, digest), now)


def applied(made: Delivery, now: float = 0.0) -> tuple[Push, ...]:
    """Let everything that is planned be applied."""
    pushes = made.plan(now)
    for push in pushes:
        answer(made, push, ResultCode.APPLIED, now)
    return pushes


def test_a_new_guest_gets_the_whole_and_nothing_more() -> None:
    made = delivery("g1")
    assert made.plan(0.0) == (Push(("g1",), ONE.ruleset, ()),)
    assert made.plan(0.0) == ()
    assert made.next_at is None
    answer(made, Push(("g1",), ONE.ruleset, ()), ResultCode.APPLIED, 1.0)
    assert not made.guests["g1"].is_behind
    assert made.plan(1e9) == ()


def test_guests_that_need_the_same_are_in_one_request_and_tenants_never_are() -> None:
    made = delivery("g1", "g2")
    made.present(guest("g3", tenant="b"), 0.0)
    made.want("g3", ONE, 0.0)
    assert [push.guests for push in made.plan(0.0)] == [("g1", "g2"), ("g3",)]


def test_a_change_goes_out_as_a_delta_from_what_each_guest_has() -> None:
    made = delivery("g1", "g2", "g3")
    applied(made)
    made.present(guest("g3", ONE.digest, capabilities=Capabilities(backends=("iptables",))), 0.0)
    made.present(guest("g4"), 0.0)
    for name in ("g1", "g2", "g3", "g4"):
        made.want(name, TWO, 1.0)
    delta, whole = made.plan(1.0)
    assert delta.guests == ("g1", "g2")
    assert isinstance(delta.ruleset, RulesetDelta)
    assert apply_delta(ONE.ruleset, delta.ruleset) == TWO.ruleset
    # The third takes no deltas, the fourth has nothing.
    assert (whole.guests, whole.ruleset) == (("g3", "g4"), TWO.ruleset)


def test_what_changes_while_a_request_is_under_way_waits_for_its_answer() -> None:
    made = delivery("g1")
    applied(made)
    made.want("g1", TWO, 1.0)
    (first,) = made.plan(1.0)
    made.want("g1", THREE, 1.0)
    assert made.plan(1.0) == ()
    answer(made, first, ResultCode.APPLIED, 2.0)
    (second,) = made.plan(2.0)
    assert isinstance(second.ruleset, RulesetDelta)
    assert (second.ruleset.base_digest, second.ruleset.digest) == (TWO.digest, THREE.digest)


def test_guests_of_one_request_wait_for_each_other_so_that_the_next_is_one_too() -> None:
    made = delivery("g1", "g2", "g3")
    applied(made)
    for name in made.guests:
        made.want(name, TWO, 1.0)
    (push,) = made.plan(1.0)
    for name in made.guests:
        made.want(name, THREE, 1.0)
    made.answered(push, GuestResult("g1", ResultCode.APPLIED), 2.0)
    assert not made.is_held("g1")  # somebody has to plan, so that it is known until when
    assert made.plan(2.0) == ()
    assert made.next_at == 2.0 + HOLD_S
    assert made.is_held("g1")
    made.answered(push, GuestResult("g2", ResultCode.APPLIED), 2.01)
    assert made.is_held("g2")
    assert made.plan(2.01) == ()
    made.answered(push, GuestResult("g3", ResultCode.APPLIED), 2.02)
    assert not made.is_held("g3")
    assert [each.guests for each in made.plan(2.02)] == [("g1", "g2", "g3")]
    assert made.next_at is None


def test_nobody_waits_long_for_a_guest_that_does_not_answer() -> None:
    made = delivery("g1", "slow")
    (push,) = made.plan(0.0)
    for name in made.guests:
        made.want(name, TWO, 0.0)
    made.answered(push, GuestResult("g1", ResultCode.APPLIED), 1.0)
    assert made.plan(1.0) == ()
    (second,) = made.plan(1.0 + HOLD_S)
    assert second.guests == ("g1",)
    answer(made, second, ResultCode.APPLIED, 2.0)
    made.want("g1", THREE, 2.0)
    assert [each.guests for each in made.plan(2.0)] == [("g1",)]


def test_a_change_that_says_nearly_all_is_sent_whole() -> None:
    made = delivery("g1")
    applied(made)
    made.want("g1", wanted(2, *range(9000, 9008)), 1.0)
    (push,) = made.plan(1.0)
    assert isinstance(push.ruleset, Ruleset)


def test_a_guest_without_the_base_gets_the_whole() -> None:
    made = delivery("g1")
    applied(made)
    made.want("g1", TWO, 1.0)
    (push,) = made.plan(1.0)
    answer(made, push, ResultCode.NEEDS_FULL, 1.0, digest="other")
    (again,) = made.plan(1.0)
    assert (again.guests, again.ruleset) == (("g1",), TWO.ruleset)


@pytest.mark.parametrize(
    ("code", "again_s"),
    [
        (ResultCode.UNREACHABLE, RESEND_S),
        (ResultCode.REFUSED, REFUSED_AGAIN_S),
        (ResultCode.NOT_INJECTABLE, RESEND_S),
        (ResultCode.GONE, RESEND_S),
        (ResultCode.SUPERSEDED, AGAIN_S),
        (ResultCode(99), RESEND_S),
    ],
)
def test_what_did_not_work_is_left_to_the_bridge_for_a_while(code: ResultCode, again_s: float) -> None:
    made = delivery("g1")
    (push,) = made.plan(0.0)
    answer(made, push, code, 10.0, text="line 3")
    assert made.guests["g1"].problem == f"{code.name}: line 3"
    assert made.next_at == 10.0 + again_s
    assert made.plan(9.0 + again_s) == ()
    assert made.plan(10.0 + again_s) == (Push(("g1",), ONE.ruleset, ()),)


def test_something_newer_is_sent_all_the_same() -> None:
    made = delivery("g1")
    (push,) = made.plan(0.0)
    answer(made, push, ResultCode.REFUSED, 0.0)
    made.want("g1", TWO, 1.0)
    (again,) = made.plan(1.0)
    assert again.ruleset == TWO.ruleset
    answer(made, again, ResultCode.APPLIED, 1.0)
    assert made.guests["g1"].problem == ""


def test_a_request_that_fails_is_made_again_whole() -> None:
    made = delivery("g1", "g2")
    applied(made)
    made.want("g1", TWO, 1.0)
    made.want("g2", TWO, 1.0)
    (push,) = made.plan(1.0)
    made.answered(push, GuestResult("g1", ResultCode.APPLIED), 1.0)
    made.failed(push, ("g2", "unknown"), 1.0, is_refused=False)
    assert made.plan(1.0) == ()
    assert made.plan(1.0 + AGAIN_S) == (Push(("g2",), TWO.ruleset, ()),)


def test_a_request_that_the_bridge_would_not_take_is_not_repeated_each_second() -> None:
    made = delivery("g1")
    (push,) = made.plan(0.0)
    made.failed(push, push.guests, 0.0, is_refused=True)
    assert made.plan(REFUSED_AGAIN_S - 1) == ()
    assert made.plan(REFUSED_AGAIN_S) != ()


def test_a_guest_that_has_it_already_is_handed_over_once_for_the_bridge_to_repair_from() -> None:
    made = Delivery()
    made.present(guest("g1", ONE.digest), 0.0)
    made.want("g1", ONE, 0.0)
    assert not made.guests["g1"].is_behind
    (push,) = made.plan(0.0)
    assert (push.ruleset, push.flush) == (ONE.ruleset, ())
    answer(made, push, ResultCode.UNCHANGED)
    assert made.plan(1e9) == ()


def test_a_guest_that_lost_its_rules_is_the_bridges_for_a_while() -> None:
    made = delivery("g1")
    applied(made)
    made.present(guest("g1", ""), 5.0)
    assert made.plan(5.0) == ()
    assert made.guests["g1"].behind_since == 5.0
    assert made.plan(5.0 + RESEND_S) == (Push(("g1",), ONE.ruleset, ()),)


def test_another_channel_is_a_new_chance() -> None:
    made = delivery("g1")
    (push,) = made.plan(0.0)
    answer(made, push, ResultCode.REFUSED, 0.0)
    made.present(guest("g1", capabilities=Capabilities(channel="shim", backends=("iptables",))), 1.0)
    assert made.guests["g1"].problem == ""
    assert made.plan(1.0) != ()


@pytest.mark.parametrize("fields", [{"capabilities": None}, {"not_injectable": "policy"}])
def test_nothing_is_sent_where_nothing_can_be_put(fields: dict[str, Any]) -> None:
    made = Delivery()
    made.present(guest("g1", **fields), 0.0)
    made.want("g1", ONE, 0.0)
    assert made.plan(0.0) == ()
    made.present(guest("g1"), 0.0)
    assert made.plan(0.0) != ()


def test_a_guest_of_which_nothing_is_known_keeps_what_it_has() -> None:
    made = delivery("g1")
    applied(made)
    made.want("g1", None, 1.0)
    assert made.plan(1e9) == ()
    assert not made.guests["g1"].is_behind


def test_after_a_connection_was_lost_all_is_handed_over_again_and_who_is_missing_is_gone() -> None:
    made = delivery("g1", "g2")
    applied(made)
    made.want("g1", TWO, 1.0)
    made.plan(1.0)
    made.lost()
    made.present(guest("g1", ONE.digest), 2.0)
    assert made.synced() == ("g2",)
    assert made.synced() == ()
    assert list(made.guests) == ["g1"]
    # Nobody knows what became of the delta: the whole is right in any case.
    assert made.plan(2.0) == (Push(("g1",), TWO.ruleset, ()),)


def test_a_bridge_that_was_restarted_and_has_not_heard_of_a_guest_yet_is_not_waited_for() -> None:
    made = delivery("g1")
    applied(made)
    made.lost()
    made.present(guest("g1", ""), 2.0)
    assert made.plan(2.0) == (Push(("g1",), ONE.ruleset, ()),)


def test_answers_for_guests_that_are_gone_change_nothing() -> None:
    made = delivery("g1")
    (push,) = made.plan(0.0)
    made.gone("g1")
    answer(made, push, ResultCode.APPLIED)
    made.failed(push, push.guests, 0.0, is_refused=False)
    assert made.guests == {}
    assert made.next_at is None


# ---- flows

UDP_ONE = wanted(1, protocol=Protocol.UDP)
UDP_TWO = wanted(2, 9000, protocol=Protocol.UDP)


def test_stale_flows_go_with_the_change_that_makes_them_so() -> None:
    made = delivery("g1", want=UDP_ONE)
    (first,) = applied(made)
    assert first.flush == ()
    made.want("g1", UDP_TWO, 1.0)
    (push,) = made.plan(1.0)
    keep = ("10.0.0.1:9000", "10.0.0.2:9000")
    assert push.flush == (StaleFlow(Protocol.UDP, "10.96.0.0", 80, keep_replies_from=keep),)


def test_what_was_not_applied_keeps_its_flows_for_the_next_try() -> None:
    made = delivery("g1", want=UDP_ONE)
    applied(made)
    made.want("g1", UDP_TWO, 1.0)
    (push,) = made.plan(1.0)
    answer(made, push, ResultCode.UNREACHABLE, 1.0)
    made.want("g1", UDP_ONE, 2.0)
    made.want("g1", wanted(4, 9002, protocol=Protocol.UDP), 2.0)
    (again,) = made.plan(2.0)
    assert [flow.destination for flow in again.flush] == ["10.96.0.0"]


def test_an_endpoint_that_ceases_to_serve_has_its_flows_flushed_though_no_rule_changes() -> None:
    made = delivery("g1", want=UDP_ONE)
    applied(made)
    fewer = wanted(1, protocol=Protocol.UDP, serving=1)
    assert fewer.digest == UDP_ONE.digest
    made.want("g1", fewer, 1.0)
    (push,) = made.plan(1.0)
    assert push.ruleset is None
    assert push.flush == (StaleFlow(Protocol.UDP, "10.96.0.0", 80, keep_replies_from=("10.0.0.1:8000",)),)
    assert made.plan(1.0) == ()
    answer(made, push, ResultCode.APPLIED, 1.0)
    assert made.plan(1e9) == ()


def test_a_guest_that_cannot_flush_is_not_asked_to() -> None:
    made = Delivery()
    made.present(guest("g1", capabilities=Capabilities(backends=("iptables",), deltas=True)), 0.0)
    made.want("g1", UDP_ONE, 0.0)
    applied(made)
    made.want("g1", UDP_TWO, 1.0)
    (push,) = made.plan(1.0)
    assert push.flush == ()


def test_a_guest_with_rules_of_before_our_start_has_all_flows_looked_at() -> None:
    made = Delivery()
    made.present(guest("g1", "of-another-time"), 0.0)
    made.want("g1", UDP_ONE, 0.0)
    (push,) = made.plan(0.0)
    assert [flow.destination for flow in push.flush] == [f"10.96.0.{number}" for number in range(8)]


# ---- against a model of the bridge

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["want", "answer", "refuse", "fail", "lose", "reboot", "needs full", "unreachable"]),
        st.integers(0, 2),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_happens_every_guest_has_in_the_end_what_it_is_to_have(steps: list[tuple[str, int]]) -> None:
    choices = (ONE, TWO, THREE)
    made, now = delivery("g0", "g1", "g2"), 0.0
    held: dict[str, Ruleset | None] = dict.fromkeys(made.guests)
    under_way: list[Push] = []

    def take(name: str, push: Push) -> GuestResult:
        if push.ruleset is None:
            return GuestResult(name, ResultCode.APPLIED)
        try:
            if isinstance(push.ruleset, RulesetDelta):
                before = held[name]
                if before is None:
                    raise NotTheBase
                held[name] = apply_delta(before, push.ruleset)
            else:
                held[name] = push.ruleset
        except NotTheBase:
            return GuestResult(name, ResultCode.NEEDS_FULL, digest=_digest(held[name]))
        return GuestResult(name, ResultCode.APPLIED, digest=push.digest)

    for act, number in [*steps, *[("answer", 0)] * 8]:
        now += 1000.0 if act == "answer" else 0.1
        planned = made.plan(now)
        sent = [name for push in (*under_way, *planned) for name in push.guests]
        assert len(sent) == len(set(sent))  # one request at a time for each guest
        under_way += planned
        name = f"g{number}"
        if act == "want":
            made.want(name, choices[number], now)
        elif act == "reboot":
            held[name] = None
            made.present(guest(name), now)
        elif act == "lose":
            under_way.clear()
            made.lost()
            for each, rules in held.items():
                made.present(guest(each, _digest(rules)), now)
            assert made.synced() == ()
        elif under_way:
            push = under_way.pop(0)
            if act == "fail":
                made.failed(push, push.guests, now, is_refused=False)
                continue
            for each in push.guests:
                codes = {
                    "refuse": ResultCode.REFUSED,
                    "needs full": ResultCode.NEEDS_FULL,
                    "unreachable": ResultCode.UNREACHABLE,
                }
                code = codes.get(act)
                result = (
                    take(each, push) if code is None else GuestResult(each, code, digest=_digest(held[each]))
                )
                made.answered(push, result, now)
    for name, standing in made.guests.items():
        assert standing.wanted is not None
        assert _digest(held[name]) == standing.wanted.digest
        assert not standing.is_behind


def _digest(rules: Ruleset | None) -> str:
    return "" if rules is None else rules.digest
