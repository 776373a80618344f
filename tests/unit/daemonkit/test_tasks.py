# SPDX-License-Identifier: Apache-2.0
import asyncio
import io

import pytest

from daemonkit import logs
from daemonkit.metrics import Registry
from daemonkit.tasks import Tasks, add_metric
from tests.metric_samples import samples_of

pytestmark = pytest.mark.asyncio


@pytest.fixture
def log() -> io.StringIO:
    stream = io.StringIO()
    logs.setup(is_json=False, stream=stream, clock=lambda: 0)
    return stream


async def test_a_task_has_a_name_and_a_result() -> None:
    tasks = Tasks("pods")

    async def seven() -> int:
        return 42

    task = tasks.spawn(seven(), "poll")
    assert task.get_name() == "pods.poll"
    assert await task == 42
    await asyncio.sleep(0)
    assert len(tasks) == 0


async def test_a_failure_is_logged_once_and_reported(log: io.StringIO) -> None:
    failures: list[tuple[str, BaseException]] = []
    tasks = Tasks("pods", on_failure=lambda name, error: failures.append((name, error)))

    async def fail() -> None:
        raise ValueError("bad")

    tasks.spawn(fail(), "poll")
    await asyncio.sleep(1)
    assert [(name, str(error)) for name, error in failures] == [("pods.poll", "bad")]
    assert log.getvalue().count("task failed") == 1
    assert 'task=pods.poll error="ValueError: bad"' in log.getvalue()
    assert len(tasks) == 0


async def test_close_cancels_and_waits() -> None:
    tasks = Tasks("pods")
    ended: list[str] = []

    async def wait(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.5)
            ended.append(name)

    for name in ("a", "b"):
        tasks.spawn(wait(name), name)
    await asyncio.sleep(0)
    assert await tasks.close(2) == ()
    assert sorted(ended) == ["a", "b"]
    assert len(tasks) == 0


async def test_close_cancels_again_after_a_swallowed_cancel() -> None:
    tasks = Tasks("pods")

    async def uncancellable_once() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(3600)

    tasks.spawn(uncancellable_once(), "stuck")
    await asyncio.sleep(0)
    assert await tasks.close(2) == ()
    assert asyncio.get_running_loop().time() == pytest.approx(1)


async def test_close_names_tasks_that_do_not_end(log: io.StringIO) -> None:
    tasks = Tasks("pods")
    may_end = asyncio.Event()

    async def uncancellable() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    task = tasks.spawn(uncancellable(), "stuck")
    await asyncio.sleep(0)
    assert await tasks.close(2) == ("pods.stuck",)
    assert "tasks did not end" in log.getvalue()
    may_end.set()
    await task


async def test_close_from_its_own_task_does_not_deadlock() -> None:
    tasks = Tasks("pods")

    async def closer() -> tuple[str, ...]:
        return await tasks.close(1)

    assert await tasks.spawn(closer(), "closer") == ()


async def test_nothing_starts_after_close() -> None:
    tasks = Tasks("pods")
    await tasks.close(1)

    async def late() -> None:
        raise AssertionError("it ran")

    with pytest.raises(RuntimeError, match="pods is closed, late is too late"):
        tasks.spawn(late(), "late")


async def test_the_metric_counts_all_tasks_of_the_loop() -> None:
    registry = Registry()
    add_metric(registry)
    tasks = Tasks("pods")
    before = len(asyncio.all_tasks())
    tasks.spawn(asyncio.sleep(1), "nap")
    assert samples_of(registry) == {"vcnode_tasks": before + 1}
    await tasks.close(1)
    assert samples_of(registry) == {"vcnode_tasks": before}


@pytest.mark.asyncio
async def test_when_over_runs_for_a_task_that_never_began() -> None:
    tasks = Tasks("trial")
    over: list[str] = []

    async def work() -> None:
        over.append("began")

    tasks.spawn(work(), "cancelled", when_over=lambda: over.append("over"))
    await tasks.close(1.0)
    assert over == ["over"]
    with pytest.raises(RuntimeError):
        tasks.spawn(work(), "late", when_over=lambda: over.append("over"))
    assert over == ["over", "over"]
