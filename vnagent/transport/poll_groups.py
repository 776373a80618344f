# SPDX-License-Identifier: Apache-2.0
"""Sockets in groups, an epoll for each, which take turns on the loop: how long one is, and who owes time."""

import asyncio
import select
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from daemonkit.fairness.scheduler import Account
from daemonkit.fairness.turns import HELD_SLICES
from vnagent.transport.event_loop import watcher_of
from vnagent.transport.handler import NO_USAGE, ByteUsage
from vnagent.transport.timing_wheel import TimingWheel, WheelMember

# Calls of any group in one iteration, and requests of a tenant alone that begin after a wait: 0.05 ms each.
CALLS = 4
# A turn of one group while other tenants have connections: it ends with the event that exceeds this. An event
# takes 0.03 to 0.3 ms, so 16 of them, of bulk data, delayed each neighbour by 2 to 8 ms. With half of this, a
# busy tenant pays for twice as many iterations of the loop, 0.02 ms each.
TURN_S = 0.0002
# The same while others work, that is within WORKING_S of a turn of theirs: mostly one event. A request of
# a neighbour takes three turns, which wait for one of a busy tenant's each.
BUSY_TURN_S = 0.00005
WORKING_S = 0.01
# Between two exchanges of a tenant's usage with other workers, of 2 us each. A worker receives a megabyte of
# a stream meanwhile, at most. What is counted one by one is exchanged where it is counted.
EXCHANGE_S = 0.001
# What a tenant may owe. A longer pause is one that its clients notice.
MAX_DEBT_S = 0.01


class PolledSocket(WheelMember, ABC):
    """A socket that a group polls. At `deadline`, by the loop's clock, the poller calls `expire`.

    The base class of `TlsConnection` stands here so that the poller imports no connection. It is a class and
    no Protocol because compiled code calls its methods directly, once an event.
    """

    __slots__ = ("_deadline", "group")

    def __init__(self, group: "PollGroup") -> None:
        super().__init__()
        self._deadline: float | None = None
        self.group = group

    @property
    def deadline(self) -> float | None:
        return self._deadline

    @deadline.setter
    def deadline(self, at_s: float | None) -> None:
        self._deadline = at_s
        # A later one is seen when the poller looks. Most are: each request moves its connection's.
        if at_s is not None and at_s < self.due_s:
            self.group.look_at(self, at_s)

    @abstractmethod
    def on_events(self, events: int) -> None:
        """Epoll reports `events` of the socket."""

    @abstractmethod
    def expire(self) -> None:
        """The deadline passed."""

    @abstractmethod
    def check_peer(self) -> None:
        """End the connection if its peer has vanished."""

    @abstractmethod
    def fail(self) -> None:
        """A callback raised: end the connection and notify its handler."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once."""


class PollGroup:
    """Sockets that share the loop fairly with those of other groups.

    One iteration of the loop handles a bounded number of a group's events and calls. `size` counts its
    sockets. `usage` is the tenant's: above its limit the sockets receive little at once. `account` is charged
    for all turns and calls.

    While other tenants have connections, each turn is bounded by its time too. A group with `has_debt` owes
    what it took beyond, and what else its account was charged for (pages, lookups): it skips its turns until
    others had as long, or until no other group has an event. While others work, one may be on its way for
    HELD_SLICES iterations, and where all that have events owe, the group that owes least is next. Its calls
    wait likewise, and what was left of both takes turns.

    While others work, a group that had no time for all of its events leaves out the next iteration. Epoll
    reports it first there, as it was ready before those that became ready in its turn.
    """

    __slots__ = (
        "_are_calls_due",
        "_calls",
        "_calls_held",
        "_charged_ns",
        "_debt_s",
        "_events",
        "_exchanged_s",
        "_has_debt",
        "_has_more",
        "_held",
        "_is_last_of_calls",
        "_is_scheduled",
        "_is_turn_due",
        "_poller",
        "_round",
        "_seen_s",
        "_turns_left",
        "_turns_seen",
        "account",
        "epoll",
        "size",
        "usage",
    )

    def __init__(self, poller: "PollTurns", events: int, account: Account, *, has_debt: bool = False) -> None:
        """`has_debt`: what exceeds a turn is owed. Raises OSError where no descriptor is left."""
        self._poller = poller
        self._events = events
        self._has_debt = has_debt
        self._debt_s = 0.0
        self._exchanged_s = 0.0
        self._turns_left = 0
        # Of the last turn, or of the last one that was left to others.
        self._turns_seen = 0
        self._seen_s = 0.0
        # Iterations without any turn that it left, one after the other; the same of its calls.
        self._held = 0
        self._calls_held = 0
        # What was left while the group owed: then its calls and its events alternate.
        self._are_calls_due = self._is_turn_due = self._is_last_of_calls = False
        # Whether its last turn may have left events, and the round of its last dispatch.
        self._has_more = False
        self._round = 0
        self._calls: deque[tuple[PolledSocket, Callable[[], None]]] = deque()
        self._is_scheduled = False
        self.account = account
        # What the account was charged for, as of the group's last look.
        self._charged_ns = account.used_ns
        self.usage: ByteUsage = NO_USAGE
        self.epoll = select.epoll()
        self.size = 0

    def start(self) -> None:
        self._poller.watcher.watch(self.epoll.fileno(), self._dispatch)

    def close(self) -> None:
        self._poller.watcher.unwatch(self.epoll.fileno())
        self.epoll.close()

    @property
    def is_empty(self) -> bool:
        return not self.size and not self._calls

    def join(self) -> None:
        """One more socket is polled."""
        self.size += 1

    def leave(self) -> None:
        """A socket is closed, or polled by another group."""
        self.size -= 1
        if not self.size:
            self._poller.close_if_empty(self)

    def look_at(self, polled: PolledSocket, at_s: float) -> None:
        """Have the poller look at a socket's deadline then."""
        self._poller.wheel.put(polled, at_s)

    def call_soon(self, polled: PolledSocket, call: Callable[[], None]) -> None:
        """Make a call of a socket's in the next iteration of the loop at the earliest."""
        self._calls.append((polled, call))
        self._schedule()

    def _is_bounded(self) -> bool:
        """Whether other tenants have connections."""
        return self._poller.tenant_count > (1 if self._has_debt else 0)

    def _are_others_working(self, now_s: float) -> bool:
        """Whether others work too. A group of calls alone has no turns: the last ones are others'."""
        poller = self._poller
        last_s = poller.last_change_s if poller.last_group is self else poller.last_turn_s
        return self._is_bounded() and now_s - last_s < WORKING_S

    def _leave_to_others(self, *, are_others_working: bool) -> bool:
        """Leave this iteration to others if the group had a turn in the last one that may have left events.
        Returns whether it does."""
        poller = self._poller
        if self._round == poller.rounds:
            poller.rounds += 1  # a group is dispatched once in an iteration
        must_leave = are_others_working and self._has_more and self._round == poller.rounds - 1
        self._round = poller.rounds
        self._has_more = False
        if must_leave:
            self._count_as_work()
        return must_leave

    def _count_as_work(self) -> None:
        """It works without a turn, which is what others in debt look for."""
        poller = self._poller
        turns = poller.turns = poller.turns + 1
        # Its own work is not what it leaves its events or its calls to.
        if self._turns_seen == turns - 1:
            self._turns_seen = turns
        if self._turns_left == turns - 1:
            self._turns_left = turns

    def use(self, account: Account) -> None:
        """Charge this account from now on."""
        if account is not self.account:
            self.account, self._charged_ns = account, account.used_ns

    def _add_debt(self) -> None:
        """Owe what the account was charged for since the group's last look. That time pays for nothing."""
        used_ns = self.account.used_ns
        if used_ns != self._charged_ns and self._has_debt:
            else_s = (used_ns - self._charged_ns) * 1e-9
            self._charged_ns = used_ns
            self._debt_s = min(MAX_DEBT_S, self._debt_s + else_s)
            self._seen_s += else_s

    def _held_most(self) -> int:
        """Iterations without any turn that the group leaves. A group that owes less goes on first."""
        poller = self._poller
        is_least = (
            poller.least_debt_group is self
            or poller.least_debt_turns != poller.turns
            or poller.least_debt_s >= self._debt_s
        )
        return HELD_SLICES if is_least else 2 * HELD_SLICES

    def _note_debt(self) -> None:
        """It leaves its turn as it owes: others that owe compare."""
        poller = self._poller
        if (
            poller.least_debt_group is self
            or poller.least_debt_turns != poller.turns
            or self._debt_s < poller.least_debt_s
        ):
            poller.least_debt_group, poller.least_debt_s = self, self._debt_s
            poller.least_debt_turns = poller.turns

    def _must_leave_turn(self, now_s: float) -> bool:
        """Whether the group owes time, and others work. The time since its last turn pays for it."""
        turns = self._poller.turns
        if turns != self._turns_seen and self._is_bounded():
            self._held = 0
        elif self._held < self._held_most() and self._are_others_working(now_s):
            self._held += 1
        else:
            self._held = 0
            self._debt_s = 0.0  # no other group had a turn, or has an event on its way
            return False
        self._debt_s -= now_s - self._seen_s
        if self._debt_s <= 0.0:
            self._debt_s = 0.0
            return False
        self._turns_seen, self._seen_s = turns, now_s
        self._note_debt()
        return True

    def _must_leave_calls(self, now_s: float) -> bool:
        """Whether the group owes time, and others had a turn since its last one, or since its calls were last
        left to them; or have an event on its way. The time since then pays."""
        turns = self._poller.turns
        if self._debt_s <= 0.0 or not self._is_bounded():
            return False
        if turns not in (self._turns_seen, self._turns_left):
            self._calls_held = 0
        elif self._calls_held < HELD_SLICES and self._are_others_working(now_s):
            self._calls_held += 1
        else:
            self._calls_held = 0
            return False
        self._debt_s = max(0.0, self._debt_s - (now_s - self._seen_s))
        self._seen_s = now_s
        if self._debt_s <= 0.0:
            return False
        self._turns_left = turns
        return True

    def _give_way(self) -> None:
        """Leave this iteration to the other of its calls and its events, once: that may be gone by then."""
        self._are_calls_due = self._is_turn_due = False

    def _end_turn(self, begun_s: float, now_s: float) -> None:
        poller = self._poller
        poller.turns += 1
        if poller.last_group is not self:
            poller.last_group, poller.last_change_s = self, now_s
        poller.last_turn_s = now_s
        self._turns_seen, self._seen_s = poller.turns, now_s
        self._charge(now_s - begun_s, now_s)

    def _end_calls(self, begun_s: float, now_s: float) -> None:
        """Calls come before the events of an iteration, and are no turn of their own. Others that owe see
        them. What others did since the last turn still pays for it, and the calls' own time does not."""
        self._count_as_work()
        if self._poller.last_group is not self:
            self._poller.last_change_s = now_s
        self._seen_s += now_s - begun_s
        self._charge(now_s - begun_s, now_s)

    def _charge(self, took_s: float, now_s: float) -> None:
        self.account.charge(int(took_s * 1e9))
        self._charged_ns = self.account.used_ns
        if self._poller.has_peers and now_s - self._exchanged_s >= EXCHANGE_S:
            self._exchanged_s = now_s
            self.usage.exchange()
        if took_s > TURN_S and self._has_debt:
            self._debt_s = min(MAX_DEBT_S, self._debt_s + took_s - TURN_S)

    def _schedule(self) -> None:
        if self._calls and not self._is_scheduled:
            self._is_scheduled = True
            self._poller.watcher.call_soon(self._run_calls)

    def _run_calls(self) -> None:
        self._is_scheduled = False
        poller = self._poller
        begun_s = poller.clock()
        self._add_debt()
        if self._must_leave_calls(begun_s):
            self._are_calls_due = True
            self._schedule()
            return
        if self._is_turn_due and self._is_last_of_calls:
            self._give_way()
            self._schedule()
            return
        self._are_calls_due, self._is_last_of_calls = False, True
        most_s = BUSY_TURN_S if self._are_others_working(begun_s) else TURN_S
        try:
            for _ in range(min(len(self._calls), CALLS)):
                poller.call_guarded(*self._calls.popleft())
                if self._is_bounded() and poller.clock() - begun_s > most_s:
                    break
            self._end_calls(begun_s, poller.clock())
        finally:  # also after what `call_guarded` does not catch, or the calls behind it would wait for good
            self._schedule()

    def _dispatch(self) -> None:
        poll, clock = self.epoll.poll, self._poller.clock
        begun_s = now_s = clock()
        are_others_working = self._are_others_working(begun_s)
        if self._leave_to_others(are_others_working=are_others_working):
            return
        self._add_debt()
        if self._debt_s > 0.0 and self._must_leave_turn(begun_s):
            self._is_turn_due = True
            return
        if self._are_calls_due and not self._is_last_of_calls:
            self._give_way()
            return
        self._is_turn_due = self._is_last_of_calls = False
        if self._is_bounded():
            most_s = BUSY_TURN_S if are_others_working else TURN_S
            # One at a time: epoll moves what it reports to the end, also those that this turn has no time
            # for. Then the same ones would be first each time.
            for _ in range(self._events):
                found = poll(0, 1)
                if not found:
                    break
                self._handle(found[0][0], found[0][1])
                now_s = clock()
                if now_s - begun_s > most_s:
                    self._has_more = True
                    break
        else:
            # Epoll reports sockets in the order in which they became ready, and moves reported ones to the
            # end. So those beyond `_events` are the first of the next iteration.
            for fd, events in poll(0, self._events):
                self._handle(fd, events)
            now_s = clock()
        self._end_turn(begun_s, now_s)

    def _handle(self, fd: int, events: int) -> None:
        # An earlier event may have closed it. A descriptor that was closed and opened again in between
        # gets a spurious event, which a non-blocking receive ignores.
        polled = self._poller.by_fd.get(fd)
        if polled is not None:
            try:
                polled.on_events(events)
            # This connection alone ends. The events that follow belong to other connections, and epoll
            # reports some of them only once.
            except Exception as error:  # noqa: BLE001 - one handler's bug must not lose others' events
                self._poller.end_failed(polled, error)


class PollTurns(ABC):
    """What all groups share: whose turn was when, the sockets, and the wheel of their deadlines.

    `SocketPoller` is this with the groups themselves. It stands here so that groups import no poller.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self.loop = loop
        self.watcher = watcher_of(loop)
        self.clock = clock
        # Turns of all groups so far, and tenants that have connections.
        self.turns = 0
        self.tenant_count = 0
        # Whether other workers serve the same tenants: turns exchange the usage with them.
        self.has_peers = False
        # The group of the last turn, when that was, and when it had its first turn behind another's.
        self.last_group: PollGroup | None = None
        self.last_turn_s = 0.0
        self.last_change_s = 0.0
        # Of the groups that left a turn since the last one was taken, the one that owes least.
        self.least_debt_group: PollGroup | None = None
        self.least_debt_turns = 0
        self.least_debt_s = 0.0
        # Iterations of the loop, as far as groups can count them.
        self.rounds = 0
        self.by_fd: dict[int, PolledSocket] = {}
        self.wheel: TimingWheel[PolledSocket] = TimingWheel(loop.time())

    @abstractmethod
    def close_if_empty(self, group: PollGroup) -> None:
        """The group has lost its last socket."""

    def call_guarded(self, polled: PolledSocket, call: Callable[[], None]) -> None:
        """Make a call of a socket's now; if it fails, this connection alone ends."""
        try:
            call()
        # The loop calls this, or a sweep for each socket.
        except Exception as error:  # noqa: BLE001 - one handler's bug must not keep others from their calls
            self.end_failed(polled, error)

    def end_failed(self, polled: PolledSocket, error: Exception) -> None:
        """End the connection whose handler raised. The loop's exception handler logs it."""
        self.loop.call_exception_handler({"message": "a connection's handler failed", "exception": error})
        polled.fail()
