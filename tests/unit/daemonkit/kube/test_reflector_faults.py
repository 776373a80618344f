# SPDX-License-Identifier: Apache-2.0
"""A reflector of a server that stalls, lags or sends undecodable data."""

import asyncio

import pytest

from daemonkit.kube import oversized_objects
from daemonkit.kube.client import UnreachableError
from daemonkit.kube.freshness import Failure
from daemonkit.kube.object_limits import MAX_OBJECT_BYTES
from daemonkit.kube.page_requests import PAGE_BYTES
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import CONFIG_MAPS
from daemonkit.metrics import Registry
from daemonkit.remedies import Cause
from devkit.kube import wire as wire
from devkit.kube.storage import StatusError
from tests.metric_samples import samples_of
from tests.unit.daemonkit.kube.reflector_environment import (
    EVERY,
    ReflectorEnvironment,
    expired,
    lists,
    refused,
)

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    ("bookmark_interval_s", "first_s", "found_s"),
    # Of what has brought a bookmark another is due; else the server is to end the watch.
    [(60.0, 61, 90), (1e9, 1, 240)],
)
async def test_a_half_open_watch_is_resumed(
    bookmark_interval_s: float, first_s: float, found_s: float
) -> None:
    env = ReflectorEnvironment()
    env.transport.bookmark_interval_s = bookmark_interval_s
    async with env.running():
        await asyncio.sleep(first_s)
        env.transport.is_stalled = True
        env.put("a")
        await asyncio.sleep(found_s - 10)
        assert not env.is_converged()
        env.transport.is_stalled = False
        await asyncio.sleep(20)
        assert env.is_converged()
        assert len(lists(env)) == 1


@pytest.mark.parametrize("error", [UnreachableError("reset", Cause.CLOSED), UnreachableError("?")])
async def test_a_proxy_that_ends_silent_streams_is_no_failure(error: UnreachableError) -> None:
    """Many end what has been silent for a minute. Each watch of a kind without events was one failure more,
    with half a minute until the next one."""
    env = ReflectorEnvironment()
    env.transport.bookmark_interval_s = 1e9
    async with env.running():
        for _ in range(10):
            await asyncio.sleep(60)
            env.transport.cut(error)
        await asyncio.sleep(1)
        if error.cause is Cause.CLOSED:
            assert env.reflector.failure is None
            # Three of them are lists, each with its watch.
            assert len(env.transport.queries) == 2 + 10 + 3
        else:
            assert env.reflector.failure is not None


async def test_a_stream_that_is_cut_at_once_is_a_failure() -> None:
    env = ReflectorEnvironment()
    async with env.running():
        await asyncio.sleep(10)
        for _ in range(10):
            env.transport.cut(UnreachableError("reset", Cause.CLOSED))
            await asyncio.sleep(0.5)
        assert env.reflector.failure is not None
        assert len(env.transport.queries) < 8


async def test_only_a_whole_answer_confirms_the_state() -> None:
    env = ReflectorEnvironment()
    env.transport.bookmark_interval_s = 1e9
    async with env.running():
        await asyncio.sleep(60)
        env.transport.cut(UnreachableError("reset", Cause.CLOSED))
        await asyncio.sleep(0.5)
        assert env.age_s() > 60
        env.transport.cut()
        await asyncio.sleep(0.5)
        assert env.age_s() > 60  # it has not lasted
        await asyncio.sleep(59)
        env.transport.cut()
        await asyncio.sleep(1)
        assert env.age_s() < 2


@pytest.mark.parametrize(
    ("end", "most"),
    # Twice as many where each watch leads to a list.
    [(b"", 40), (expired(), 80), (wire.event("ERROR", StatusError(500, "InternalError", "?").status), 40)],
)
async def test_a_watch_of_one_bookmark_is_no_tight_loop(end: bytes, most: int) -> None:
    """A tenant's API server that ends each watch behind a bookmark was asked again at once, for good."""
    env = ReflectorEnvironment()
    env.transport.whole_watch = wire.bookmark(CONFIG_MAPS, env.storage.revision) + end
    async with env.running():
        await asyncio.sleep(600)
        assert len(env.transport.queries) <= most
        env.transport.heal()
        env.put("a")
        await asyncio.sleep(31)
        assert env.is_converged()


async def test_events_of_short_watches_are_not_delayed() -> None:
    """An API server behind a proxy that ends each stream: its watches bring events."""
    env = ReflectorEnvironment()
    async with env.running():
        await env.reflector.synced.wait()
        for number in range(20):
            env.put(f"a{number}")
            await asyncio.sleep(0.1)
            assert env.is_converged()
            env.transport.cut()
            await asyncio.sleep(0.1)


async def test_a_stale_list_after_a_newer_watch_changes_nothing() -> None:
    env = ReflectorEnvironment()
    env.put("a")
    stale = wire.list_page(env.storage, EVERY, {})
    async with env.running():
        await env.reflector.synced.wait()
        env.put("b")
        env.delete("a")
        await asyncio.sleep(1)
        env.transport.stale_list = stale
        env.transport.inject(expired())
        await asyncio.sleep(100)
        assert env.is_converged()
        assert env.age_s() > 99
        assert "resourceVersion" not in lists(env)[-1]
        env.transport.heal()
        await asyncio.sleep(31)
        assert env.is_converged()
        assert len(env.changes_seen) == 3


async def test_a_storage_that_went_back_is_counted() -> None:
    """A restored backup: each list past the caches is older, until its versions are higher again."""
    env = ReflectorEnvironment()
    env.put("a")
    backup = wire.list_page(env.storage, EVERY, {})
    async with env.running():
        await env.reflector.synced.wait()
        env.put("b")
        await asyncio.sleep(1)
        assert env.reflector.regressions == 0
        env.transport.stale_list = backup
        env.transport.inject(expired())
        await asyncio.sleep(10)
        assert env.reflector.regressions >= 3
        env.transport.heal()
        await asyncio.sleep(31)
        assert env.reflector.regressions == 0


async def test_an_undecodable_object_does_not_hide_others() -> None:
    env = ReflectorEnvironment()
    env.put("a")
    env.storage.put(CONFIG_MAPS, {"metadata": {"name": "odd", "namespace": "ns"}, "data": {"x": 1}})
    async with env.running():
        await env.reflector.synced.wait()
        assert list(env.reflector.objects) == [("ns", "a")]
        assert env.reflector.undecodable == {("ns", "odd"): "Expected `str`, got `int` - at `$.data[...]`"}
        env.put("odd", x="1")
        await asyncio.sleep(1)
        assert env.is_converged()


async def test_an_oversized_object_does_not_hide_others() -> None:
    env = ReflectorEnvironment()
    env.put("a")
    env.put("large", text="x" * MAX_OBJECT_BYTES)
    labels = {f"label-{number:09}": "" for number in range(1_001)}
    labelled = {"metadata": {"name": "labelled", "namespace": "ns", "labels": labels}}
    env.storage.put(CONFIG_MAPS, labelled)
    async with env.running():
        await env.reflector.synced.wait()
        assert list(env.reflector.objects) == [("ns", "a")]
        reason = "too large: metadata.labels has more than 1000 entries"
        assert env.reflector.undecodable["ns", "labelled"] == reason
        env.delete("labelled")
        await asyncio.sleep(1)
        (failure,) = env.reflector.decode_failures.values()
        assert failure.is_too_large
        assert (failure.key, failure.reason) == (
            ("ns", "large"),
            f"too large: it has more than {5 << 20} bytes",
        )
        assert failure.uid
        metric = Registry()
        oversized_objects.add_metric(metric)
        assert samples_of(metric) == {'vcnode_process_oversized_objects{kind="configmaps"}': 1}
        env.put("large", text="y" * MAX_OBJECT_BYTES)
        await asyncio.sleep(1)
        batches = env.batches
        env.put("large", text="z" * MAX_OBJECT_BYTES)
        await asyncio.sleep(1)
        assert env.batches == batches  # the same news is none
        env.put("a", text="w" * MAX_OBJECT_BYTES)
        await asyncio.sleep(1)
        assert not env.reflector.objects
        env.put("a")
        env.delete("large")
        await asyncio.sleep(1)
        assert env.is_converged()
        assert not env.reflector.decode_failures


@pytest.mark.parametrize("asks_early", [False, True])
async def test_pages_of_large_objects_are_halved(asks_early: bool) -> None:
    env = ReflectorEnvironment(Timing(page_size=20), asks_early=asks_early)
    for number in range(20):
        env.put(f"large{number:02}", text="x" * (PAGE_BYTES // 4))
    for number in range(80):
        env.put(f"small{number:02}")
    async with env.running():
        await env.reflector.synced.wait()
        assert len(env.reflector.objects) == 100
    limits = [int(query["limit"]) for query in lists(env)]
    assert limits == [20, 10, 5, *[2] * 10, 2, 4, 8, 16, 20, 20, 20]


async def test_an_object_larger_than_a_page_is_listed_alone() -> None:
    env = ReflectorEnvironment(Timing(page_size=20))
    env.put("a")
    env.put("large", text="x" * (PAGE_BYTES + 1))
    async with env.running():
        await env.reflector.synced.wait()
        assert list(env.reflector.objects) == [("ns", "a")]
        assert env.reflector.decode_failures[("ns", "large")].is_too_large


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\xff garbage \n",
        b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>\n",
        b'{"type": "ADDED", "object": {"kind": "ConfigMap"}}\n',
        b'{"type": "ADDED", "object": {"metadata": {}}}\n',
        b'{"type": "SHRUNK", "object": {}}\n',
        b"[" * 200_000 + b"\n",
        b"x" * (17 * 1024 * 1024),
    ],
)
async def test_garbage_leads_to_a_new_list(garbage: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    env = ReflectorEnvironment()
    async with env.running():
        await env.reflector.synced.wait()
        env.put("a")
        await asyncio.sleep(1)
        env.transport.inject(garbage)
        env.put("b")
        await asyncio.sleep(2)
        assert env.is_converged()
        assert len(lists(env)) == 2
    assert "list or watch failed" in capsys.readouterr().err


async def test_a_resource_not_installed_is_synced_and_empty() -> None:
    env = ReflectorEnvironment(may_be_absent=True)
    env.storage.absent.add(CONFIG_MAPS)
    async with env.running():
        await env.reflector.synced.wait()
        assert env.reflector.is_absent
        assert (dict(env.reflector.objects), env.batches) == ({}, 1)
        await asyncio.sleep(300)
        assert env.batches == 1
        assert 16 <= len(lists(env)) <= 28  # soon at first, then twice a minute, with some jitter
        assert env.age_s() <= 30
        env.storage.absent.clear()
        env.put("a")
        await asyncio.sleep(31)
        assert env.is_converged()
        assert not env.reflector.is_absent


async def test_a_resource_installed_soon_is_soon_listed() -> None:
    env = ReflectorEnvironment(may_be_absent=True)
    env.storage.absent.add(CONFIG_MAPS)
    async with env.running():
        await asyncio.sleep(4)
        assert env.reflector.is_absent
        env.storage.absent.clear()
        await asyncio.sleep(4)
        assert not env.reflector.is_absent


async def test_a_server_that_is_back_need_not_be_waited_for() -> None:
    """After a long outage the next try is half a minute away; one that fails begins with short waits anew."""
    env = ReflectorEnvironment()
    env.transport.failures += [UnreachableError("connect")] * 30
    async with env.running():
        await asyncio.sleep(300)
        assert not env.reflector.synced.is_set()
        asked = len(lists(env))
        env.reflector.retry_now()
        await asyncio.sleep(1)
        assert len(lists(env)) == asked + 2
        env.transport.failures.clear()
        env.reflector.retry_now()
        await asyncio.sleep(0.1)
        assert env.is_converged()
        env.reflector.retry_now()  # it does not wait for anything
        await asyncio.sleep(10)
        assert len(lists(env)) == asked + 3


async def test_an_empty_list_after_a_404_calls_the_handler() -> None:
    env = ReflectorEnvironment(may_be_absent=True)
    env.storage.absent.add(CONFIG_MAPS)
    async with env.running():
        await env.reflector.synced.wait()
        env.storage.absent.clear()
        await asyncio.sleep(31)
        assert (env.batches, env.reflector.is_absent) == (2, False)


async def test_a_404_removes_no_listed_objects() -> None:
    env = ReflectorEnvironment(may_be_absent=True)
    env.put("a")
    async with env.running():
        await asyncio.sleep(1)
        env.storage.absent.add(CONFIG_MAPS)
        env.transport.inject(expired())
        await asyncio.sleep(100)
        assert list(env.reflector.objects) == [("ns", "a")]
        assert not env.reflector.is_absent
        assert env.age_s() > 90


def _logged_codes(log: str) -> list[str]:
    """The HTTP codes of the failures that were logged."""
    lines = [line for line in log.splitlines() if "list or watch failed" in line]
    return [line.partition('reason="')[2][:3] for line in lines]


async def test_a_vanished_resource_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Its definition was deleted. The reflector retries every 30 s, for days. The log has the begin and the
    end."""
    env = ReflectorEnvironment(may_be_absent=True)
    env.put("a")
    async with env.running():
        await asyncio.sleep(1)
        env.storage.absent.add(CONFIG_MAPS)
        env.transport.inject(expired())
        capsys.readouterr()
        await asyncio.sleep(3600)
        assert len(lists(env)) > 60
        assert _logged_codes(capsys.readouterr().err) == ["410", "404"]
        failure = _failure(env)
        assert failure is not None
        assert (failure.code, failure.since < 10) == (404, True)

        env.storage.absent.clear()
        await asyncio.sleep(60)
        back, listed = capsys.readouterr().err.splitlines()
        assert "list and watch work again" in back
        assert "listed" in listed
        assert _failure(env) is None


async def test_a_new_reason_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    env = ReflectorEnvironment()
    env.transport.failures = [*[refused(503)] * 5, *[refused(403)] * 5, *[refused(503)] * 5]
    async with env.running():
        await env.reflector.synced.wait()
    codes = [
        line.split('reason="')[1][:3] for line in capsys.readouterr().err.splitlines() if "failed" in line
    ]
    assert codes == ["503", "403", "503"]


async def test_a_watch_that_always_fails_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The lists in between succeed, and end nothing."""
    env = ReflectorEnvironment()
    async with env.running():
        for _ in range(20):
            await asyncio.sleep(40)
            env.transport.inject(b"<html>502</html>\n")
        await asyncio.sleep(40)
        assert len(lists(env)) > 20
        lines = capsys.readouterr().err.splitlines()
        assert sum("list or watch failed" in line for line in lines) == 1
        assert not any("work again" in line for line in lines)
        env.put("a")
        await asyncio.sleep(1)
    assert "work again" in capsys.readouterr().err


async def test_a_404_does_not_sync_a_required_resource() -> None:
    env = ReflectorEnvironment()
    env.storage.absent.add(CONFIG_MAPS)
    async with env.running():
        await asyncio.sleep(100)
        assert not env.reflector.synced.is_set()
        assert env.batches == 0


@pytest.mark.parametrize("code", [401, 403, 503])
async def test_a_403_is_not_an_absent_resource(code: int) -> None:
    env = ReflectorEnvironment(may_be_absent=True)
    env.transport.failures = [refused(code)] * 50
    async with env.running():
        await asyncio.sleep(100)
        assert not env.reflector.synced.is_set()


def _failure(env: ReflectorEnvironment) -> Failure | None:
    """A call, so that a type checker does not narrow it by an earlier value."""
    return env.reflector.failure


async def test_a_failure_lasts_until_the_next_proof() -> None:
    env = ReflectorEnvironment()
    began = asyncio.get_running_loop().time()
    env.transport.failures = [refused(403)] * 3
    async with env.running():
        await asyncio.sleep(1)
        first = _failure(env)
        assert first is not None
        assert (first.code, first.since - began < 0.5) == (403, True)
        assert "403" in first.message
        await env.reflector.synced.wait()
        assert asyncio.get_running_loop().time() - began > 1
        assert _failure(env) is None
        env.transport.failures = [refused(500)] * 1000
        env.transport.cut()
        await asyncio.sleep(100)
        second = _failure(env)
        assert second is not None
        assert (second.code, second.since > first.since) == (500, True)
        await asyncio.sleep(100)
        assert _failure(env) == second
        env.transport.heal()
        await asyncio.sleep(100)
        assert _failure(env) is None
