# SPDX-License-Identifier: Apache-2.0
"""Charges coroutines to tenants, and lets them take turns on the event loop.

A coroutine that `Account.run` was given is charged for the processor time of each of its steps, from where it
is resumed to its next await, whatever is called in between. While the loop is idle its steps begin as asyncio
resumes them. Once a slice is used up they wait, and `turns` decides whose is next. What is done for a tenant
without a coroutine is charged by `Account.charge`, by who measures it (vn-agent's sockets); the tenant's next
turn pays for that too, and for what coroutines of another account do for it (`Account.charge_others`).

What counts is the thread's processor time: on a busy machine a tenant must not pay for what other processes
do. Reading that clock is a system call of 0.3 to 0.7 us, and most steps are short. So a step of less than
SHORT_STEP_NS by the wall clock, which is read without a system call, counts as that long: no other process
can have had more of it. A longer one counts as no more than what the thread used since a reading that is at
most READING_AGE_NS older than the step.
"""

import asyncio
import contextvars
import functools
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, Self, TypeVar

from daemonkit.fairness.turns import SLICE_NS, FairShare, Turns

T = TypeVar("T")

AccountRun = Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]]
"""As `Account.run`, or `without_account`."""

SHORT_STEP_NS = 50_000
READING_AGE_NS = 1_000_000


def without_account(coro: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    """The coroutine as it is: no account pays for it."""
    return coro


class TenantScheduler:
    """Schedules the steps of one event loop. `open` an account for each tenant, and one for other work."""

    __slots__ = ("_clock_ns", "_is_due", "clock_ns", "last_ns", "read_until_ns", "slices", "turns")

    def __init__(
        self,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        processor_clock_ns: Callable[[], int] = time.thread_time_ns,
        slice_ns: int = SLICE_NS,
    ) -> None:
        self.clock_ns = clock_ns
        self.turns: Turns[Account] = Turns(slice_ns)
        self.read_until_ns = -1  # when the last reading of the processor clock is too old
        self._clock_ns = processor_clock_ns
        self.last_ns = 0  # the last reading
        self.slices = 0  # that have begun
        self._is_due = False

    def open(self, name: str, weight: int = 1) -> "Account":
        """An account with a share of `weight`, from 1 to 100. Close it when its last coroutine has ended."""
        account = Account(self, name)
        self.turns.set_weight(account, weight)
        return account

    def read(self, now_ns: int) -> int:
        """Read the processor clock."""
        self.last_ns = self._clock_ns()
        self.read_until_ns = now_ns + READING_AGE_NS
        return self.last_ns

    def used_since(self, begun_ns: int, read_ns: int) -> int:
        """What the thread used since this time of a step that has not ended, which began at this reading."""
        took_ns = self.clock_ns() - begun_ns
        return took_ns if took_ns <= SHORT_STEP_NS else min(took_ns, self._clock_ns() - read_ns)

    def have_next_slice(self) -> None:
        """The slice is used up, or a step waits."""
        if not self._is_due:
            self._is_due = True
            # Behind what is ready now: the loop looks after all else between two slices.
            asyncio.get_running_loop().call_soon(self._next_slice)

    def _next_slice(self) -> None:
        turns = self.turns
        self.slices += 1
        turns.begin_slice()
        try:
            while (account := turns.first()) is not None:
                turns.take()
                waiter = account.next_waiter()
                if waiter is not None:
                    waiter.take()
                    if account.has_waiters:
                        turns.stay(account)
                elif account.has_waiters:
                    turns.wait(account)  # for the next slice
        finally:
            self._is_due = False
            if turns.is_used_up or turns.are_any_waiting:
                self.have_next_slice()


class _Turn(asyncio.Future[None]):
    """What a task waits for until it has its turn. It is resumed within `take`, and not by a callback of the
    event loop: what the step takes is known then before the next turn is given, and one iteration of the loop
    takes many steps."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.slice_number = number  # in which it began to wait
        self._task_step: Callable[[], object] | None = None

    def add_done_callback(
        self, fn: Callable[[Self], object], /, *, context: contextvars.Context | None = None
    ) -> None:
        """Keep what resumes the task that waits: `take`, `take_soon` or `cancel` calls it, once."""
        run = contextvars.copy_context().run if context is None else context.run
        self._task_step = functools.partial(run, fn, self)

    def take(self) -> None:
        """Have the task take its step now. Not within a step of another task."""
        self.set_result(None)
        self._resume()

    def take_soon(self) -> None:
        """As `take`, by the event loop."""
        self.set_result(None)
        self.get_loop().call_soon(self._resume)

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg):
            return False
        self.get_loop().call_soon(self._resume)
        return True

    def _resume(self) -> None:
        # Nothing of the task is held any more: in a circle it would wait for the garbage collector.
        step, self._task_step = self._task_step, None
        if step is not None:
            step()


class Account(FairShare):
    """What is done for one tenant. `used_ns` is the processor time of its steps, and of what was charged."""

    __slots__ = (
        "_begun_ns",
        "_debt_ns",
        "_is_in_step",
        "_is_open",
        "_read_ns",
        "_scheduler",
        "_shared_ns",
        "_waiters",
        "name",
        "used_ns",
    )

    def __init__(self, scheduler: TenantScheduler, name: str) -> None:
        super().__init__()
        self.name = name
        self.used_ns = 0
        self._is_in_step = False
        self._begun_ns = self._read_ns = 0
        self._shared_ns = 0  # of this step, others were charged for
        self._is_open = True
        self._scheduler = scheduler
        self._debt_ns = 0
        self._waiters: deque[_Turn] = deque()

    def run(self, coro: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The same coroutine, charged and in turns. Await it, or have a task of it.

        One that is cancelled ends without waiting for a turn. Within another one of the account it is charged
        as part of that.
        """
        return _Charged(self, coro)

    def charge(self, took_ns: int) -> None:
        """Something was done for the tenant outside its coroutines: its next turn pays."""
        self.used_ns += took_ns
        self._debt_ns += took_ns

    def charge_others(self, parts: "Mapping[Account, int]", whole: int) -> None:
        """This step was taken for others: charge them for what it took until now, by their parts of `whole`.

        The steps before it count too, if each ended with `asyncio.sleep(0)` and charged no other account.
        This account is charged for its steps as well, by its own weight. Outside a step this does nothing.
        """
        if self._is_in_step and whole > 0:
            took_ns = self._scheduler.used_since(self._begun_ns, self._read_ns) - self._shared_ns
            self._shared_ns += took_ns
            for account, part in parts.items():
                account.charge(took_ns * part // whole)

    def set_weight(self, weight: int) -> None:
        """Have another share, from 1 to 100."""
        if self._is_open:
            self._scheduler.turns.set_weight(self, weight)

    def close(self) -> None:
        """End the account. A coroutine that is left over is charged, and waits for no turn."""
        if self._is_open:
            self._is_open = False
            self._scheduler.turns.remove(self)
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.take_soon()

    @property
    def is_in_step(self) -> bool:
        """Whether a step of one of its coroutines is being taken."""
        return self._is_in_step

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    def next_waiter(self) -> _Turn | None:
        """The step that waits for the longest time, if it began to before this slice."""
        while self._waiters:
            waiter = self._waiters[0]
            if waiter.done():  # it was cancelled
                self._waiters.popleft()
            elif waiter.slice_number < self._scheduler.slices:
                return self._waiters.popleft()
            else:
                break
        return None

    def steps(self, coro: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Resume `coro` until it ends."""
        scheduler, send = self._scheduler, coro.send
        turns, clock_ns = scheduler.turns, scheduler.clock_ns
        error: BaseException | None = None
        carried_ns = 0  # of steps that went before and were for whom `charge_others` will tell
        while True:
            if self._is_in_step:
                # Driven by another coroutine of the account, which has its turn and is charged.
                try:
                    found = send(None) if error is None else coro.throw(error)
                except StopIteration as end:
                    returned: T = end.value
                    return returned
            else:
                if self._debt_ns:
                    turns.add_debt(self, self._debt_ns)
                    self._debt_ns = 0
                if (
                    self._is_open
                    and not turns.may_go_on(self)
                    and not isinstance(error, asyncio.CancelledError)
                ):
                    waiter = _Turn(scheduler.slices, asyncio.get_running_loop())
                    self._waiters.append(waiter)
                    turns.wait(self)
                    scheduler.have_next_slice()
                    try:
                        yield from waiter
                    # What it was resumed with is lost, as with a task that asyncio was about to resume.
                    except asyncio.CancelledError as cancelled:
                        error = cancelled
                self._begun_ns = begun_ns = clock_ns()
                if begun_ns > scheduler.read_until_ns:
                    scheduler.read(begun_ns)
                # A step of another account within this one reads it too.
                self._read_ns = read_ns = scheduler.last_ns
                self._shared_ns = -carried_ns
                self._is_in_step = True
                try:
                    found = send(None) if error is None else coro.throw(error)
                except StopIteration as end:
                    returned = end.value
                    return returned
                finally:
                    self._is_in_step = False
                    ended_ns = clock_ns()
                    took_ns = ended_ns - begun_ns
                    if took_ns > SHORT_STEP_NS:
                        took_ns = min(took_ns, scheduler.read(ended_ns) - read_ns)
                    self.used_ns += took_ns
                    if self._is_open and turns.charge(self, took_ns):
                        scheduler.have_next_slice()
                carried_ns = 0
                if found is None:  # a sleep of 0 s
                    if self._shared_ns <= 0:
                        # Work in steps is for the same tenants, until it waits for something else or they
                        # have paid.
                        carried_ns = took_ns - self._shared_ns
                    if self._is_open and not turns.may_go_on(self):
                        error = None
                        continue  # to wait for a turn is such a sleep
            try:
                yield found
                error = None
            except BaseException as raised:  # noqa: BLE001 - it is the coroutine's to see
                error = raised


class _Charged(Coroutine[Any, Any, T]):
    """A coroutine by its steps. No generator alone: one that never began would leave `coro` unclosed."""

    __slots__ = ("_coro", "_steps")

    def __init__(self, account: Account, coro: Coroutine[Any, Any, T]) -> None:
        self._coro = coro
        self._steps = account.steps(coro)

    def send(self, value: Any) -> Any:
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        try:
            return self._steps.throw(*error)
        except BaseException:
            self._coro.close()  # one that has not begun never sees the error
            raise

    def close(self) -> None:
        self._steps.close()
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._steps
