# SPDX-License-Identifier: Apache-2.0
"""How the memory of a process is divided: shares hold, whoever came first."""

from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.shared_budget import MIN_SHARE_BYTES, SharedBudget

MIB = 1 << 20


class _Member:
    """One server. `elsewhere` cannot be given back."""

    def __init__(self, budget: SharedBudget, counted_bytes: int = 0, elsewhere_bytes: int = 0) -> None:
        self._budget = budget
        self._elsewhere_bytes = elsewhere_bytes
        self.held_bytes = 0
        self.ends = 0
        budget.join(self)
        self.hold(counted_bytes)

    @property
    def counted_bytes(self) -> int:
        return self.held_bytes + self._elsewhere_bytes

    def hold(self, size_bytes: int) -> None:
        self._budget.held_changed(size_bytes - self.held_bytes)
        self.held_bytes = size_bytes

    def end(self) -> None:
        """What is held is given back later."""
        self.ends += 1


OTHERS_FIRST = (
    "the memory of the process is used up: others are to give back what they have beyond their shares"
)


def test_the_last_part_is_left_to_others() -> None:
    budget = SharedBudget(160 * MIB)
    hog, _ = _Member(budget, 130 * MIB), _Member(budget)
    assert budget.refusal(hog, 10 * MIB) == ""
    assert budget.refusal(hog, 11 * MIB) == (
        "the memory of the process is used up: 130 MiB of it are held for this API server's objects, "
        "and its share is 80 MiB"
    )


def test_who_has_less_than_its_share_gets_it_from_who_has_most() -> None:
    budget = SharedBudget(160 * MIB)
    hog, second, honest = _Member(budget, 70 * MIB), _Member(budget, 65 * MIB), _Member(budget, 4 * MIB)
    assert budget.refusal(honest, 2 * MIB) == ""
    assert (hog.ends, second.ends, honest.ends) == (1, 0, 0)


def test_what_is_to_be_given_back_is_waited_for() -> None:
    """Several that have a claim at once could else take the rest many times over."""
    budget = SharedBudget(160 * MIB)
    hog, honest = _Member(budget, 140 * MIB), _Member(budget, 20 * MIB)
    assert budget.refusal(honest, MIB) == OTHERS_FIRST
    assert hog.ends == 1
    hog.hold(0)
    assert budget.refusal(honest, MIB) == ""
    assert hog.ends == 1


def test_what_cannot_be_given_back_ends_nobody() -> None:
    """A member that has all of it in the super cluster would be ended again and again."""
    budget = SharedBudget(160 * MIB, lambda: 150 * MIB)
    below, honest = _Member(budget, 0, 150 * MIB), _Member(budget, MIB)
    assert budget.refusal(honest, MIB) == ""
    assert below.ends == 0


def test_what_is_held_for_nobody_leaves_less() -> None:
    budget = SharedBudget(160 * MIB, lambda: 100 * MIB)
    one, _ = _Member(budget, 26 * MIB), _Member(budget, 14 * MIB)
    assert budget.share_bytes == 30 * MIB
    assert "its share is 30 MiB" in budget.refusal(one, 5 * MIB)


def test_each_member_takes_bytes_of_its_own() -> None:
    budget = SharedBudget(160 * MIB, member_bytes=4 * MIB)
    for _ in range(4):
        _Member(budget)
    assert (budget.total_bytes(), budget.share_bytes) == (16 * MIB, 36 * MIB)


def test_there_is_room_for_so_many_members() -> None:
    budget = SharedBudget(20 * MIN_SHARE_BYTES, member_bytes=MIN_SHARE_BYTES)
    members = [_Member(budget) for _ in range(10)]
    assert (budget.room, budget.is_overcommitted) == (10, False)
    members.append(_Member(budget))
    assert (budget.is_overcommitted, budget.share_bytes) == (True, MIN_SHARE_BYTES)
    budget.leave(members.pop())
    assert not budget.is_overcommitted


def test_a_member_that_leaves_gives_back_what_it_held_once() -> None:
    budget = SharedBudget(160 * MIB)
    one = _Member(budget, 10 * MIB)
    _Member(budget, 5 * MIB)
    budget.leave(one)
    budget.leave(one)
    assert budget.total_bytes() == 5 * MIB


_STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), max_size=40)


@given(_STEPS)
def test_the_limit_holds_and_so_does_each_share(steps: list[tuple[int, int]]) -> None:
    """Whoever asks takes what it is given. A member below its share waits for an end of another at most."""
    budget = SharedBudget(160 * MIB)
    members = [_Member(budget) for _ in range(4)]
    for who, mib in steps:
        member, more = members[who], mib * MIB
        refusal = budget.refusal(member, more)
        if not refusal:
            member.hold(member.held_bytes + more)
        elif member.counted_bytes + more <= budget.share_bytes:
            (ended,) = [each for each in members if each.ends]
            assert (refusal, ended is member) == (OTHERS_FIRST, False)
        for each in members:
            if each.ends:
                each.ends = 0
                each.hold(0)
        assert budget.total_bytes() <= budget.limit_bytes
