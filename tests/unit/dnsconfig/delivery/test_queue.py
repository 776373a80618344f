# SPDX-License-Identifier: Apache-2.0
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge_api.messages import GuestResult, ResultCode
from dnsconfig.delivery.queue import MAX_IN_FLIGHT, RETRY_FIRST_S, RETRY_MAX_S, Delivery, Push, State, Target
from dnsconfig.retention.desired import Wanted

ONE, TWO = Target("g1"), Target(pod_uid="u2")
TEXT, OTHER, WAITS = Wanted("nameserver 10.0.0.1\n"), Wanted("nameserver 10.0.0.2\n"), Wanted(waits="not yet")
APPLIED = GuestResult(code=ResultCode.APPLIED)


def connected() -> Delivery:
    made = Delivery()
    made.synced()
    return made


def due(delivery: Delivery, now: float = 0.0) -> list[Push]:
    return list(delivery.due(now))


def test_each_target_gets_what_it_is_to_have_once() -> None:
    delivery = connected()
    delivery.want({ONE: TEXT, TWO: WAITS}, 1.0)
    first, second = due(delivery)
    assert (first.target, first.text, first.waits, first.changed_at) == (ONE, TEXT.text, "", 1.0)
    assert (second.target, second.text, second.waits) == (TWO, "", "not yet")
    assert due(delivery) == []
    assert delivery.answered(first, APPLIED, 2.0)
    assert delivery.answered(second, GuestResult(code=ResultCode.UNCHANGED), 2.0)
    delivery.want({ONE: TEXT, TWO: WAITS}, 3.0)
    assert due(delivery) == []
    assert {each.state for each in delivery.standings.values()} == {State.CURRENT}


def test_nothing_is_sent_without_a_connection_and_everything_after_one() -> None:
    delivery = Delivery()
    delivery.want({ONE: TEXT}, 0.0)
    assert due(delivery) == []
    delivery.synced()
    (push,) = due(delivery)
    delivery.answered(push, APPLIED, 0.0)
    delivery.lost()
    assert due(delivery) == []
    assert delivery.standings[ONE].state is State.BEHIND
    delivery.synced()
    (again,) = due(delivery)
    assert again.wanted == TEXT
    # What was asked in the old connection says nothing of the new one.
    assert not delivery.answered(push, APPLIED, 0.0)
    assert delivery.standings[ONE].state is State.BEHIND


def test_what_changes_while_it_is_sent_is_sent_when_that_is_answered() -> None:
    delivery = connected()
    delivery.want({ONE: TEXT}, 0.0)
    (push,) = due(delivery)
    delivery.want({ONE: OTHER}, 1.0)
    assert due(delivery) == []
    assert delivery.answered(push, APPLIED, 1.0)
    (push,) = due(delivery)
    assert (push.wanted, push.changed_at) == (OTHER, 1.0)


def test_what_fails_is_tried_again_ever_more_slowly_until_something_changes() -> None:
    delivery = connected()
    delivery.want({ONE: TEXT}, 0.0)
    now, waits = 0.0, []
    for _ in range(10):
        (push,) = due(delivery, now)
        assert not delivery.answered(push, GuestResult(code=ResultCode.REFUSED, message="no room"), now)
        at = delivery.next_at()
        assert at is not None
        assert due(delivery, at - 0.01) == []
        waits.append(at - now)
        now = at
    assert waits == [min(RETRY_MAX_S, RETRY_FIRST_S * 2.0**number) for number in range(10)]
    standing = delivery.standings[ONE]
    assert (standing.state, standing.problem) == (State.FAILING, "no room")
    (push,) = due(delivery, now)
    delivery.failed(push, "away", now)
    delivery.want({ONE: OTHER}, now)
    (push,) = due(delivery, now)
    assert delivery.answered(push, APPLIED, now)
    assert (standing.state, standing.problem, delivery.next_at()) == (State.CURRENT, "", None)


def test_what_fails_for_days_is_still_tried_again() -> None:
    delivery = connected()
    delivery.want({ONE: TEXT}, 0.0)
    now = 0.0
    for _ in range(2_000):
        (push,) = due(delivery, now)
        delivery.failed(push, "no answer", now)
        at = delivery.next_at()
        assert at is not None
        assert at - now <= RETRY_MAX_S
        now = at


def test_a_guest_without_a_way_for_changes_has_it_all_the_same() -> None:
    delivery = connected()
    delivery.want({ONE: TEXT}, 0.0)
    (push,) = due(delivery)
    assert delivery.answered(push, GuestResult(code=ResultCode.NOT_INJECTABLE, message="stock"), 0.0)
    assert (delivery.standings[ONE].state, delivery.standings[ONE].problem) == (State.CURRENT, "stock")


def test_who_is_not_wanted_is_forgotten() -> None:
    delivery = connected()
    delivery.want({ONE: TEXT}, 0.0)
    (push,) = due(delivery)
    delivery.want({}, 0.0)
    assert not delivery.answered(push, APPLIED, 0.0)
    delivery.failed(push, "late", 0.0)
    delivery.want({ONE: TEXT}, 0.0)
    delivery.want({}, 0.0)
    assert delivery.standings == {}


def test_who_comes_back_while_something_is_in_flight_waits_for_its_answer() -> None:
    delivery = connected()
    delivery.want({ONE: TEXT}, 0.0)
    (push,) = due(delivery)
    delivery.want({}, 0.0)
    delivery.want({ONE: WAITS}, 0.0)
    assert due(delivery) == []
    delivery.answered(push, APPLIED, 0.0)
    (push,) = due(delivery)
    assert push.wanted == WAITS


def test_a_pod_that_is_named_otherwise_waits_for_the_answer_to_what_it_was_called_before() -> None:
    by_uid, by_guest, another = Target(pod_uid="u1"), Target("g1", "u1"), Target("g2", "u2")
    delivery = connected()
    delivery.want({by_uid: TEXT}, 0.0)
    (older,) = due(delivery)
    delivery.want({by_guest: OTHER, another: TEXT}, 0.0)
    (push,) = due(delivery)
    assert push.target == another
    assert not delivery.answered(older, APPLIED, 0.0)
    (push,) = due(delivery)
    assert (push.target, push.wanted) == (by_guest, OTHER)
    # The way back, when the guest has gone; an answer that never comes is a failure in the end.
    delivery.want({by_uid: WAITS}, 0.0)
    assert due(delivery) == []
    delivery.failed(push, "no answer", 0.0)
    (push,) = due(delivery)
    assert (push.target, push.wanted) == (by_uid, WAITS)


def test_nobody_is_woken_for_a_pod_that_waits_for_an_answer() -> None:
    by_uid, by_guest = Target(pod_uid="u1"), Target("g1", "u1")
    delivery = connected()
    delivery.want({by_uid: TEXT, by_guest: TEXT}, 0.0)
    (push,) = due(delivery)
    delivery.failed(push, "away", 0.0)
    at = delivery.next_at()
    assert at is not None
    (push,) = due(delivery)
    assert push.target == by_guest
    assert due(delivery, at) == []
    assert delivery.next_at() is None


def test_pods_without_a_guest_wait_until_all_guests_are_told() -> None:
    delivery = Delivery()
    delivery.connected()
    delivery.want({ONE: TEXT, TWO: TEXT}, 0.0)
    (push,) = due(delivery)
    assert push.target == ONE
    delivery.synced()
    (push,) = due(delivery)
    assert push.target == TWO
    delivery.lost()
    delivery.connected()
    assert [each.target for each in due(delivery)] == [ONE]


def test_so_many_at_once_and_no_more() -> None:
    delivery = connected()
    delivery.want({Target(str(number)): TEXT for number in range(100)}, 0.0)
    first = due(delivery)
    assert len(first) == MAX_IN_FLIGHT
    assert due(delivery) == []
    delivery.answered(first[0], APPLIED, 0.0)
    assert len(due(delivery)) == 1


class Model(RuleBasedStateMachine):
    """Whatever happens in whatever order: in the end each target has what it was to have."""

    def __init__(self) -> None:
        super().__init__()
        self.delivery = Delivery()
        self.now = 0.0
        self.flying: list[Push] = []
        self.bridge: dict[Target, Wanted] = {}

    @rule(values=st.dictionaries(st.sampled_from([ONE, TWO, Target("g3")]), st.sampled_from([TEXT, WAITS])))
    def want(self, values: dict[Target, Wanted]) -> None:
        self.delivery.want(values, self.now)

    @rule()
    def connect(self) -> None:
        self.delivery.synced()

    @rule()
    def lose(self) -> None:
        self.delivery.lost()
        self.bridge.clear()
        self.flying.clear()

    @rule()
    def send(self) -> None:
        self.flying += self.delivery.due(self.now)

    @precondition(lambda self: self.flying)
    @rule(how=st.sampled_from(["applied", "refused", "failed"]))
    def end(self, how: str) -> None:
        push = self.flying.pop()
        if how == "applied":
            self.bridge[push.target] = push.wanted
            self.delivery.answered(push, APPLIED, self.now)
        elif how == "refused":
            self.delivery.answered(push, GuestResult(code=ResultCode.REFUSED), self.now)
        else:
            self.delivery.failed(push, "away", self.now)

    @rule(seconds=st.floats(0.0, 40.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nobody_is_said_to_have_what_the_bridge_has_not(self) -> None:
        for target, standing in self.delivery.standings.items():
            assert standing.has is None or standing.has == self.bridge[target]
        assert sum(standing.in_flight is not None for standing in self.delivery.standings.values()) <= 16

    def teardown(self) -> None:
        self.delivery.synced()
        for _ in range(10):
            self.now += RETRY_MAX_S
            for push in [*self.flying, *self.delivery.due(self.now)]:
                self.bridge[push.target] = push.wanted
                self.delivery.answered(push, APPLIED, self.now)
            self.flying.clear()
        for target, standing in self.delivery.standings.items():
            assert self.bridge[target] == standing.wanted
            assert not standing.is_forgotten


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=25)
