# SPDX-License-Identifier: Apache-2.0
"""Charges coroutines to tenants, and lets them take turns on the event loop.

A coroutine that `Account.run` was given is charged for the processor time of each of its steps, from where it
is resumed to its next await, whatever is called in between. While the loop is idle its steps begin as asyncio
resumes them. Once a slice is used up they wait, and `turns` decides whose is next. What is done for a tenant
without a coroutine is charged by `Account.charge`, by who measures it (vn-agent's sockets); the tenant's next
turn pays for that too.

The clock is the thread's processor time: on a busy machine a tenant must not pay for what other processes do.
Reading it takes 0.3 to 0.6 us; steps take 20 us and more.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from daemonkit.fairness.lease import Lease
from daemonkit.fairness.turns import SLICE_NS, Turns

T = TypeVar("T")


class TenantScheduler:
    """Schedules the steps of one event loop. `open` an account for each tenant, and one for other work."""

    def __init__(
        self, *, clock_ns: Callable[[], int] = time.thread_time_ns, slice_ns: int = SLICE_NS
    ) -> None:
        self.clock_ns = clock_ns
        self._turns: Turns[Account] = Turns(slice_ns)
        self._is_due = False

    def open(self, name: str, weight: int = 1) -> "Account":
        """An account with a share of `weight`, from 1 to 100. Close it when its last coroutine has ended."""
        account = Account(self, name)
        self._turns.set_weight(account, weight)
        return account

    def set_weight(self, account: "Account", weight: int) -> None:
        """Give an account another share, from its next turn on."""
        self._turns.set_weight(account, weight)

    def may_go_on(self) -> bool:
        """Whether a step may begin at once."""
        return self._turns.may_go_on()

    def wait(self, account: "Account") -> None:
        """A step of an account waits for its turn."""
        self._turns.wait(account)
        self._have_next_slice()

    def must_give_back(self, account: "Account", reserved_ns: int) -> bool:
        """Whether a step that has its turn must wait for another."""
        return self._turns.must_give_back(account, reserved_ns)

    def charge(self, account: "Account", took_ns: int, reserved_ns: int) -> None:
        """A step has ended."""
        self._turns.charge(account, took_ns, reserved_ns)
        if self._turns.is_over:
            self._have_next_slice()

    def close(self, account: "Account") -> None:
        """Forget an account."""
        self._turns.remove(account)

    def _have_next_slice(self) -> None:
        if not self._is_due:
            self._is_due = True
            # Behind what is ready now, and behind the steps that the last slice has admitted.
            asyncio.get_running_loop().call_soon(self._next_slice)

    def _next_slice(self) -> None:
        self._is_due = False
        turns = self._turns
        turns.begin_slice()
        while (account := turns.first()) is not None:
            waiter = account.next_waiter()
            if waiter is None:
                turns.leave()
            else:
                turns.add_debt(account, account.take_debt())
                waiter.set_result(turns.take(stays=account.has_waiters))
        if turns.are_any_waiting:
            self._have_next_slice()


class Account:
    """What is done for one tenant. `used_ns` is the processor time of its steps, and of what was charged."""

    __slots__ = ("_debt_ns", "_is_in_step", "_lease", "_scheduler", "_waiters", "name", "used_ns")

    def __init__(self, scheduler: TenantScheduler, name: str) -> None:
        self.name = name
        self.used_ns = 0
        self._is_in_step = False
        self._scheduler = scheduler
        self._debt_ns = 0
        self._waiters: deque[asyncio.Future[int]] = deque()
        self._lease = Lease(lambda: scheduler.close(self))

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

    def take_debt(self) -> int:
        """What was charged since the last call, in nanoseconds."""
        debt_ns, self._debt_ns = self._debt_ns, 0
        return debt_ns

    def set_weight(self, weight: int) -> None:
        """Have another share, from 1 to 100."""
        if self._lease.is_held:
            self._scheduler.set_weight(self, weight)

    def close(self) -> None:
        """End the account. A coroutine that is left over is charged, and waits for no turn."""
        self._lease.release()
        while (waiter := self.next_waiter()) is not None:
            waiter.set_result(0)

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    def next_waiter(self) -> "asyncio.Future[int] | None":
        """The step that waits for the longest time; the caller sets what is reserved for it."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():  # else it was cancelled
                return waiter
        return None

    def steps(self, coro: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Resume `coro` until it ends."""
        scheduler, clock_ns = self._scheduler, self._scheduler.clock_ns
        error: BaseException | None = None
        while True:
            reserved_ns = 0
            # Driven by another coroutine of the account, which has its turn.
            is_part = self._is_in_step
            is_free = is_part or isinstance(error, asyncio.CancelledError) or not self._lease.is_held
            if not is_free and not scheduler.may_go_on():
                waiter = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                scheduler.wait(self)
                try:
                    yield from waiter
                # What it was resumed with is lost, as with a task that asyncio was about to resume.
                except asyncio.CancelledError as cancelled:
                    error = cancelled
                if waiter.done() and not waiter.cancelled():
                    reserved_ns = waiter.result()
                    if error is None and scheduler.must_give_back(self, reserved_ns):
                        continue
            begun_ns = 0 if is_part else clock_ns()
            self._is_in_step = True
            try:
                found = coro.send(None) if error is None else coro.throw(error)
            except StopIteration as end:
                returned: T = end.value
                return returned
            finally:
                if not is_part:
                    self._is_in_step = False
                    took_ns = clock_ns() - begun_ns
                    self.used_ns += took_ns
                    if self._lease.is_held:
                        scheduler.charge(self, took_ns, reserved_ns)
            error = None
            if found is None and not is_part and self._lease.is_held and not scheduler.may_go_on():
                continue  # a sleep of 0 s: to wait for a turn is one
            try:
                yield found
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
