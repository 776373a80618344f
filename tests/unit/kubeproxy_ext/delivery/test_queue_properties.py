# SPDX-License-Identifier: Apache-2.0
"""Delivery against a model of the bridge: after any history every guest has its desired rules."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from bridge_api.messages import GuestResult, ResultCode
from kubeproxy_ext.delivery.queue import RulesetPush
from ruleset.delta import BaseMismatch, RulesetDelta, apply_delta
from ruleset.document import Ruleset
from tests.unit.kubeproxy_ext.delivery.queues import ONE, THREE, TWO, delivery, guest

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["desire", "respond", "refuse", "fail", "lose", "reboot", "needs full", "unreachable"]
        ),
        st.integers(0, 2),
    ),
    max_size=40,
)

REFUSALS = {
    "refuse": ResultCode.REFUSED,
    "needs full": ResultCode.NEEDS_FULL,
    "unreachable": ResultCode.UNREACHABLE,
}


class BridgeModel:
    """The rules in guests, and the results of a bridge for them."""

    def __init__(self, names: Iterable[str]) -> None:
        self.installed: dict[str, Ruleset | None] = dict.fromkeys(names)

    def digest(self, name: str) -> str:
        rules = self.installed[name]
        return "" if rules is None else rules.digest

    def result_of(self, act: str, name: str, push: RulesetPush) -> GuestResult:
        code = REFUSALS.get(act)
        if code is None:
            return self.take(name, push)
        return GuestResult(name, code, digest=self.digest(name))

    def take(self, name: str, push: RulesetPush) -> GuestResult:
        if push.ruleset is None:
            return GuestResult(name, ResultCode.APPLIED)
        try:
            if isinstance(push.ruleset, RulesetDelta):
                before = self.installed[name]
                if before is None:
                    raise BaseMismatch
                self.installed[name] = apply_delta(before, push.ruleset)
            else:
                self.installed[name] = push.ruleset
        except BaseMismatch:
            return GuestResult(name, ResultCode.NEEDS_FULL, digest=self.digest(name))
        return GuestResult(name, ResultCode.APPLIED, digest=push.digest)


@given(STEPS)
def test_every_guest_converges_to_its_desired_ruleset(steps: list[tuple[str, int]]) -> None:
    choices = (ONE, TWO, THREE)
    made, now = delivery("g0", "g1", "g2"), 0.0
    bridge = BridgeModel(made.guests)
    under_way: list[RulesetPush] = []
    for act, number in [*steps, *[("respond", 0)] * 8]:
        now += 1000.0 if act == "respond" else 0.1
        planned = made.take_due(now)
        sent = [name for push in (*under_way, *planned) for name in push.guests]
        assert len(sent) == len(set(sent))  # one request at a time for each guest
        under_way += planned
        name = f"g{number}"
        if act == "desire":
            made.set_desired(name, choices[number], now)
        elif act == "reboot":
            bridge.installed[name] = None
            made.on_guest(guest(name), now)
        elif act == "lose":
            under_way.clear()
            made.on_disconnect()
            for each in bridge.installed:
                made.on_guest(guest(each, bridge.digest(each)), now)
            assert made.on_synced() == ()
        elif under_way:
            push = under_way.pop(0)
            if act == "fail":
                made.on_failure(push, push.guests, now, is_refused=False)
                continue
            for each in push.guests:
                made.on_result(push, bridge.result_of(act, each, push), now)
    for name, status in made.guests.items():
        assert status.desired is not None
        assert bridge.digest(name) == status.desired.digest
        assert not status.is_behind
