# SPDX-License-Identifier: Apache-2.0
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge_api.messages import GuestResult, ResultCode
from dnsconfig.delivery.queue import (
    MAX_IN_FLIGHT,
    RETRY_FIRST_S,
    RETRY_MAX_S,
    DeliveryState,
    ResolverDelivery,
    ResolverPush,
    ResolverTarget,
)
from dnsconfig.retention.desired import DesiredResolver

ONE, TWO = ResolverTarget("g1"), ResolverTarget(pod_uid="u2")
TEXT, OTHER, WAITS = (
    DesiredResolver("nameserver 10.0.0.1\n"),
    DesiredResolver("nameserver 10.0.0.2\n"),
    DesiredResolver(wait_message="not yet"),
)
APPLIED = GuestResult(code=ResultCode.APPLIED)


def connected() -> ResolverDelivery:
    made = ResolverDelivery()
    made.on_synced()
    return made


def due(delivery: ResolverDelivery, now: float = 0.0) -> list[ResolverPush]:
    return list(delivery.take_due(now))


def test_each_desired_resolver_is_submitted_once() -> None:
    delivery = connected()
    delivery.set_desired({ONE: TEXT, TWO: WAITS}, 1.0)
    first, second = due(delivery)
    assert (first.target, first.desired.text, first.desired.wait_message, first.changed_at) == (
        ONE,
        TEXT.text,
        "",
        1.0,
    )
    assert (second.target, second.desired.text, second.desired.wait_message) == (TWO, "", "not yet")
    assert due(delivery) == []
    assert delivery.on_result(first, APPLIED, 2.0)
    assert delivery.on_result(second, GuestResult(code=ResultCode.UNCHANGED), 2.0)
    delivery.set_desired({ONE: TEXT, TWO: WAITS}, 3.0)
    assert due(delivery) == []
    assert {each.state for each in delivery.statuses.values()} == {DeliveryState.APPLIED}


def test_each_session_begins_with_all_resolvers() -> None:
    delivery = ResolverDelivery()
    delivery.set_desired({ONE: TEXT}, 0.0)
    assert due(delivery) == []
    delivery.on_synced()
    (push,) = due(delivery)
    delivery.on_result(push, APPLIED, 0.0)
    delivery.on_disconnect()
    assert due(delivery) == []
    assert delivery.statuses[ONE].state is DeliveryState.PENDING
    delivery.on_synced()
    (again,) = due(delivery)
    assert again.desired == TEXT
    # Results of the earlier session do not count in the next one.
    assert not delivery.on_result(push, APPLIED, 0.0)
    assert delivery.statuses[ONE].state is DeliveryState.PENDING


def test_a_change_in_flight_follows_the_response() -> None:
    delivery = connected()
    delivery.set_desired({ONE: TEXT}, 0.0)
    (push,) = due(delivery)
    delivery.set_desired({ONE: OTHER}, 1.0)
    assert due(delivery) == []
    assert delivery.on_result(push, APPLIED, 1.0)
    (push,) = due(delivery)
    assert (push.desired, push.changed_at) == (OTHER, 1.0)


def test_failures_back_off_until_a_change() -> None:
    delivery = connected()
    delivery.set_desired({ONE: TEXT}, 0.0)
    now, delays = 0.0, []
    for _ in range(10):
        (push,) = due(delivery, now)
        assert not delivery.on_result(push, GuestResult(code=ResultCode.REFUSED, message="no room"), now)
        at = delivery.next_retry_at()
        assert at is not None
        assert due(delivery, at - 0.01) == []
        delays.append(at - now)
        now = at
    assert delays == [min(RETRY_MAX_S, RETRY_FIRST_S * 2.0**number) for number in range(10)]
    status = delivery.statuses[ONE]
    assert (status.state, status.problem) == (DeliveryState.FAILING, "no room")
    (push,) = due(delivery, now)
    delivery.on_failure(push, "away", now)
    delivery.set_desired({ONE: OTHER}, now)
    (push,) = due(delivery, now)
    assert delivery.on_result(push, APPLIED, now)
    assert (status.state, status.problem, delivery.next_retry_at()) == (DeliveryState.APPLIED, "", None)


def test_retries_never_end() -> None:
    delivery = connected()
    delivery.set_desired({ONE: TEXT}, 0.0)
    now = 0.0
    for _ in range(2_000):
        (push,) = due(delivery, now)
        delivery.on_failure(push, "no answer", now)
        at = delivery.next_retry_at()
        assert at is not None
        assert at - now <= RETRY_MAX_S
        now = at


def test_not_injectable_counts_as_applied() -> None:
    delivery = connected()
    delivery.set_desired({ONE: TEXT}, 0.0)
    (push,) = due(delivery)
    assert delivery.on_result(push, GuestResult(code=ResultCode.NOT_INJECTABLE, message="stock"), 0.0)
    assert (delivery.statuses[ONE].state, delivery.statuses[ONE].problem) == (DeliveryState.APPLIED, "stock")


def test_targets_that_are_not_desired_are_forgotten() -> None:
    delivery = connected()
    delivery.set_desired({ONE: TEXT}, 0.0)
    (push,) = due(delivery)
    delivery.set_desired({}, 0.0)
    assert not delivery.on_result(push, APPLIED, 0.0)
    delivery.on_failure(push, "late", 0.0)
    delivery.set_desired({ONE: TEXT}, 0.0)
    delivery.set_desired({}, 0.0)
    assert delivery.statuses == {}


def test_a_forgotten_target_returns_after_its_response() -> None:
    delivery = connected()
    delivery.set_desired({ONE: TEXT}, 0.0)
    (push,) = due(delivery)
    delivery.set_desired({}, 0.0)
    delivery.set_desired({ONE: WAITS}, 0.0)
    assert due(delivery) == []
    delivery.on_result(push, APPLIED, 0.0)
    (push,) = due(delivery)
    assert push.desired == WAITS


def test_two_targets_of_a_pod_are_never_in_flight_together() -> None:
    by_uid, by_guest, another = (
        ResolverTarget(pod_uid="u1"),
        ResolverTarget("g1", "u1"),
        ResolverTarget("g2", "u2"),
    )
    delivery = connected()
    delivery.set_desired({by_uid: TEXT}, 0.0)
    (older,) = due(delivery)
    delivery.set_desired({by_guest: OTHER, another: TEXT}, 0.0)
    (push,) = due(delivery)
    assert push.target == another
    assert not delivery.on_result(older, APPLIED, 0.0)
    (push,) = due(delivery)
    assert (push.target, push.desired) == (by_guest, OTHER)
    # Submits by UID again after the guest is gone; a missing response becomes a failure.
    delivery.set_desired({by_uid: WAITS}, 0.0)
    assert due(delivery) == []
    delivery.on_failure(push, "no answer", 0.0)
    (push,) = due(delivery)
    assert (push.target, push.desired) == (by_uid, WAITS)


def test_no_retry_time_while_a_pod_is_in_flight() -> None:
    by_uid, by_guest = ResolverTarget(pod_uid="u1"), ResolverTarget("g1", "u1")
    delivery = connected()
    delivery.set_desired({by_uid: TEXT, by_guest: TEXT}, 0.0)
    (push,) = due(delivery)
    delivery.on_failure(push, "away", 0.0)
    at = delivery.next_retry_at()
    assert at is not None
    (push,) = due(delivery)
    assert push.target == by_guest
    assert due(delivery, at) == []
    assert delivery.next_retry_at() is None


def test_pods_named_by_uid_wait_for_all_guests() -> None:
    delivery = ResolverDelivery()
    delivery.on_connected()
    delivery.set_desired({ONE: TEXT, TWO: TEXT}, 0.0)
    (push,) = due(delivery)
    assert push.target == ONE
    delivery.on_synced()
    (push,) = due(delivery)
    assert push.target == TWO
    delivery.on_disconnect()
    delivery.on_connected()
    assert [each.target for each in due(delivery)] == [ONE]


def test_requests_in_flight_are_bounded() -> None:
    delivery = connected()
    delivery.set_desired({ResolverTarget(str(number)): TEXT for number in range(100)}, 0.0)
    first = due(delivery)
    assert len(first) == MAX_IN_FLIGHT
    assert due(delivery) == []
    delivery.on_result(first[0], APPLIED, 0.0)
    assert len(due(delivery)) == 1


class Model(RuleBasedStateMachine):
    """After any order of events each target has its desired resolver in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.delivery = ResolverDelivery()
        self.now = 0.0
        self.flying: list[ResolverPush] = []
        self.bridge: dict[ResolverTarget, DesiredResolver] = {}

    @rule(
        values=st.dictionaries(
            st.sampled_from([ONE, TWO, ResolverTarget("g3")]), st.sampled_from([TEXT, WAITS])
        )
    )
    def set_desired(self, values: dict[ResolverTarget, DesiredResolver]) -> None:
        self.delivery.set_desired(values, self.now)

    @rule()
    def connect(self) -> None:
        self.delivery.on_synced()

    @rule()
    def lose(self) -> None:
        self.delivery.on_disconnect()
        self.bridge.clear()
        self.flying.clear()

    @rule()
    def send(self) -> None:
        self.flying += self.delivery.take_due(self.now)

    @precondition(lambda self: self.flying)
    @rule(how=st.sampled_from(["applied", "refused", "failed"]))
    def end(self, how: str) -> None:
        push = self.flying.pop()
        if how == "applied":
            self.bridge[push.target] = push.desired
            self.delivery.on_result(push, APPLIED, self.now)
        elif how == "refused":
            self.delivery.on_result(push, GuestResult(code=ResultCode.REFUSED), self.now)
        else:
            self.delivery.on_failure(push, "away", self.now)

    @rule(seconds=st.floats(0.0, 40.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def applied_resolvers_are_those_of_the_bridge(self) -> None:
        for target, status in self.delivery.statuses.items():
            assert status.applied is None or status.applied == self.bridge[target]
        assert sum(status.in_flight is not None for status in self.delivery.statuses.values()) <= 16

    def teardown(self) -> None:
        self.delivery.on_synced()
        for _ in range(10):
            self.now += RETRY_MAX_S
            for push in [*self.flying, *self.delivery.take_due(self.now)]:
                self.bridge[push.target] = push.desired
                self.delivery.on_result(push, APPLIED, self.now)
            self.flying.clear()
        for target, status in self.delivery.statuses.items():
            assert self.bridge[target] == status.desired
            assert not status.is_forgotten


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=25)
