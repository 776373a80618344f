# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.admission.fair_queue import MAX_IDLE_ACCOUNTS, FairQueue


def queued(*names: str) -> FairQueue[str]:
    """The first letter is the account."""
    queue: FairQueue[str] = FairQueue()
    for name in names:
        queue.add(name, name[0])
    return queue


def served(queue: FairQueue[str], count: int, cost: float = 1.0) -> str:
    names = []
    for _ in range(count):
        name = queue.pop()
        if name is None:
            break
        names.append(name)
        queue.charge(name[0], cost)
    return " ".join(names)


def test_accounts_alternate_and_each_keeps_its_order() -> None:
    assert served(queued("a1", "a2", "a3", "b1", "c1", "b2"), 9) == "a1 b1 c1 a2 b2 a3"


def test_accounts_are_served_by_their_cost() -> None:
    queue = queued("a1", "b1", "a2", "b2", "b3", "b4")
    assert queue.pop() == "a1"
    queue.charge("a", 2.5)
    assert served(queue, 9) == "b1 b2 b3 a2 b4"


def test_a_new_account_is_served_next() -> None:
    queue = queued(*(f"a{number}" for number in range(500)), *(f"b{number}" for number in range(500)))
    served(queue, 100)
    queue.add("z1", "z")
    assert "z1" in served(queue, 2).split()


def test_an_idle_account_saves_no_credit() -> None:
    queue = queued(*(f"a{number}" for number in range(20)))
    served(queue, 10)
    for number in range(9):
        queue.add(f"b{number}", "b")
    assert served(queue, 4).count("b") == 2


def test_discarded_entries_are_not_served() -> None:
    queue = queued("a1", "a2", "b1")
    queue.discard("a1")
    queue.discard("b1")
    queue.discard("b1")
    assert len(queue) == 1
    assert served(queue, 9) == "a2"
    assert queue.pop() is None
    queue.add("a1", "a")
    assert queue.pop() == "a1"


def test_idle_accounts_are_forgotten() -> None:
    queue = queued("z1")
    for number in range(2 * MAX_IDLE_ACCOUNTS):
        queue.charge(f"account {number}", 1.0)
    assert queue.accounts <= MAX_IDLE_ACCOUNTS + 2
    assert queue.pop() == "z1"
    assert queue.pop() is None
    assert queue.accounts == 0


EVENTS = st.lists(st.tuples(st.sampled_from(["add", "drop", "pop"]), st.integers(0, 12)), max_size=120)


@given(EVENTS)
def test_each_entry_is_served_once_unless_discarded(events: list[tuple[str, int]]) -> None:
    queue: FairQueue[str] = FairQueue()
    waiting: dict[str, None] = {}
    for kind, number in events:
        name = f"{'abc'[number % 3]}{number}"
        if kind == "add" and name not in waiting:
            queue.add(name, name[0])
            waiting[name] = None
        elif kind == "drop":
            queue.discard(name)
            waiting.pop(name, None)
        elif kind == "pop":
            one = queue.pop()
            assert (one is None) == (not waiting)
            if one is not None:
                of_account = [each for each in waiting if each[0] == one[0]]
                assert one == of_account[0]
                del waiting[one]
                queue.charge(one[0], 1.0)
        assert len(queue) == len(waiting)


@given(st.lists(st.sampled_from("abc"), min_size=30, max_size=90))
def test_no_waiting_account_lags_by_more_than_one_entry(accounts: list[str]) -> None:
    """The fairness that start-time fair queueing promises, for pieces that cost the same."""
    queue = queued(*(f"{account}{number}" for number, account in enumerate(accounts)))
    left = {account: accounts.count(account) for account in "abc"}
    served_counts = dict.fromkeys("abc", 0)
    while (one := queue.pop()) is not None:
        queue.charge(one[0], 1.0)
        served_counts[one[0]] += 1
        left[one[0]] -= 1
        waits = [served_counts[account] for account in "abc" if left[account]]
        assert not waits or served_counts[one[0]] - min(waits) <= 1


def test_accounts_without_served_entries_are_forgotten() -> None:
    """While all slots are in use nothing is popped, and there may be as many accounts as addresses."""
    queue = queued("a1", "a2", "b1")
    served(queue, 1)
    for number in range(5 * MAX_IDLE_ACCOUNTS):
        queue.add(f"x{number}", f"of {number}")
        queue.discard(f"x{number}")
    assert queue.accounts <= 2 * (MAX_IDLE_ACCOUNTS + 2)
    # What waits is where it was.
    assert served(queue, 9) == "b1 a2"
