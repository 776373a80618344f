# SPDX-License-Identifier: Apache-2.0
"""The event loop whose selector calls descriptors' callbacks: asyncio's own work does not wait for them."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

import pytest

from vnagent.transport.event_loop import AgentLoop, watcher_of

WITHIN_S = 10.0


def run(body: Callable[[AgentLoop], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(WITHIN_S):
            await body(cast(AgentLoop, asyncio.get_running_loop()))

    with asyncio.Runner(loop_factory=AgentLoop) as runner:
        runner.run(main())


class Pipe:
    """Has a byte to read from the start."""

    def __init__(self) -> None:
        self.fd, self.far_fd = os.pipe()
        self.count = 0
        self.write()

    def write(self) -> None:
        os.write(self.far_fd, b"x")

    def read(self) -> None:
        self.count += len(os.read(self.fd, 1))

    def count_event(self) -> None:
        """Leave the byte there: the next iteration has an event again."""
        self.count += 1

    def close(self) -> None:
        os.close(self.fd)
        os.close(self.far_fd)


@contextlib.contextmanager
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def busy_pipe(loop: AgentLoop) -> Iterator[Pipe]:
    """A watched pipe that has an event in each iteration."""
    with pipe() as made:
        loop.callbacks.watch(made.fd, made.count_event)
        try:
            yield made
        finally:
            loop.callbacks.unwatch(made.fd)


def count_polls(loop: AgentLoop, monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The timeouts with which asyncio calls `select` from now on."""
    polls: list[float | None] = []
    select = loop.callbacks.select

    def record(timeout: float | None = None) -> object:
        polls.append(timeout)
        return select(timeout)

    monkeypatch.setattr(loop.callbacks, "select", record)
    return polls


def test_events_do_not_return_to_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(loop: AgentLoop) -> None:
        done = loop.create_future()
        with pipe() as one:

            def read() -> None:
                one.read()
                if one.count == 100:
                    done.set_result(None)
                else:
                    one.write()

            loop.callbacks.watch(one.fd, read)
            polls = count_polls(loop, monkeypatch)
            await done
            loop.callbacks.unwatch(one.fd)
        # The first may have begun before, and the last one returns for `done`.
        assert (one.count, len(polls) <= 2) == (100, True)

    run(body)


def test_a_timer_is_due_beside_a_busy_descriptor() -> None:
    async def body(loop: AgentLoop) -> None:
        with busy_pipe(loop) as busy:
            before_s = loop.time()
            await asyncio.sleep(0.02)  # pace: the timer is what is tested
            assert loop.time() - before_s >= 0.02
            assert busy.count > 1

    run(body)


def test_a_timer_of_a_callback_is_due() -> None:
    """`select` had no timeout when the callback made the timer."""

    async def body(loop: AgentLoop) -> None:
        done = loop.create_future()
        with pipe() as one:

            def read() -> None:
                one.read()
                loop.call_later(0.01, done.set_result, None)

            loop.callbacks.watch(one.fd, read)
            await done
            loop.callbacks.unwatch(one.fd)

    run(body)


def test_asyncio_has_a_turn_in_each_iteration() -> None:
    async def body(loop: AgentLoop) -> None:
        with busy_pipe(loop) as busy:
            await asyncio.sleep(0)  # pace: iterations are counted
            before = busy.count
            for _ in range(100):
                await asyncio.sleep(0)
            assert busy.count - before == 100

    run(body)


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_threads_and_signals_are_noticed(is_busy: bool) -> None:
    async def body(loop: AgentLoop) -> None:
        got = loop.create_future()
        loop.add_signal_handler(signal.SIGUSR2, got.set_result, "signal")
        with busy_pipe(loop) if is_busy else contextlib.nullcontext():
            assert await asyncio.to_thread(lambda: "thread") == "thread"
            await asyncio.to_thread(os.kill, os.getpid(), signal.SIGUSR2)
            assert await got == "signal"
        loop.remove_signal_handler(signal.SIGUSR2)

    run(body)


def test_a_task_is_cancelled_by_a_callback() -> None:
    async def body(loop: AgentLoop) -> None:
        task = loop.create_task(asyncio.sleep(3600))
        with pipe() as one:

            def read() -> None:
                one.read()
                task.cancel()

            loop.callbacks.watch(one.fd, read)
            with pytest.raises(asyncio.CancelledError):
                await task
            loop.callbacks.unwatch(one.fd)

    run(body)


def test_a_callback_can_stop_the_loop() -> None:
    loop = AgentLoop()
    with pipe() as one:

        def read() -> None:
            one.read()
            loop.stop()

        loop.callbacks.watch(one.fd, read)
        loop.run_forever()
        loop.close()
    assert one.count == 1


@pytest.mark.parametrize("fault", [ValueError("a bug"), asyncio.CancelledError()], ids=["error", "cancelled"])
def test_a_failing_callback_ends_nothing_else(fault: BaseException) -> None:
    async def body(loop: AgentLoop) -> None:
        done, faults = loop.create_future(), list[object]()
        loop.set_exception_handler(lambda _loop, context: faults.append(context["exception"]))

        def fail() -> None:
            loop.callbacks.unwatch(bad.fd)
            raise fault

        def read() -> None:
            good.read()
            loop.callbacks.call_soon(fail_once)
            loop.callbacks.call_soon(lambda: done.set_result(None))

        def fail_once() -> None:
            raise fault

        with pipe() as bad, pipe() as good:
            loop.callbacks.watch(bad.fd, fail)
            loop.callbacks.watch(good.fd, read)
            await done
            loop.callbacks.unwatch(good.fd)
        assert faults == [fault, fault]

    run(body)


def test_a_call_of_a_call_is_made_an_iteration_later() -> None:
    async def body(loop: AgentLoop) -> None:
        order: list[str] = []

        def call() -> None:
            order.append("call")
            if len(order) < 6:
                loop.callbacks.call_soon(call)

        def read() -> None:
            order.append("event")

        with pipe() as one:
            loop.callbacks.watch(one.fd, read)
            loop.callbacks.call_soon(call)
            for _ in range(6):
                await asyncio.sleep(0)  # pace: iterations are counted
            loop.callbacks.unwatch(one.fd)
        assert order[:6] == ["call", "event"] * 3

    run(body)


def test_a_closed_descriptor_has_no_event() -> None:
    async def body(loop: AgentLoop) -> None:
        done, events = loop.create_future(), list[int]()
        pipes = [Pipe(), Pipe()]

        def end(number: int) -> None:
            events.append(number)
            for one in pipes:
                loop.callbacks.unwatch(one.fd)
            done.set_result(None)

        loop.callbacks.watch(pipes[0].fd, lambda: end(0))
        loop.callbacks.watch(pipes[1].fd, lambda: end(1))
        await done
        for one in pipes:
            one.close()
        assert len(events) == 1

    run(body)


def test_other_descriptors_are_asyncios() -> None:
    """Streams of the status pages use the loop's own readers and writers."""

    async def body(loop: AgentLoop) -> None:
        with busy_pipe(loop):
            near, far = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=near)
            far.setblocking(False)
            data = b"x" * 1_000_000
            writer.write(data)
            assert len(await asyncio.gather(*[loop.sock_recv(far, 1)])) == 1
            received = 1
            while received < len(data):
                received += len(await loop.sock_recv(far, 65536))
            await loop.sock_sendall(far, b"answer\n")
            assert await reader.readline() == b"answer\n"
            writer.close()
            await writer.wait_closed()
            far.close()

    run(body)


def test_a_closed_descriptor_can_be_unwatched() -> None:
    async def body(loop: AgentLoop) -> None:
        one = Pipe()
        loop.callbacks.watch(one.fd, one.read)
        one.close()
        loop.callbacks.unwatch(one.fd)
        loop.callbacks.unwatch(one.fd)

    run(body)


def test_another_loop_watches_by_its_own_handles() -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        watcher, done = watcher_of(loop), loop.create_future()
        with pipe() as one:

            def read() -> None:
                one.read()
                watcher.unwatch(one.fd)
                watcher.call_soon(lambda: done.set_result(None))

            watcher.watch(one.fd, read)
            await done
        assert one.count == 1

    asyncio.run(body())
