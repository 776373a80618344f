# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import gc
import weakref
from collections.abc import Mapping

import pytest

from daemonkit.kube.client import MAX_RESPONSE_BYTES, AnswerTooLargeError, UnreachableError
from daemonkit.kube.page_requests import PAGE_BYTES, PageRequests, body_limit_of
from daemonkit.kube.watch import MAX_EVENT_BYTES
from daemonkit.remedies import Cause
from daemonkit.tasks import Tasks

pytestmark = pytest.mark.asyncio

SECOND = {"limit": "5", "continue": "token"}


class PageSource:
    """Answers requests when it is let, with their parameters' `continue`."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, str]] = []
        self.was_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None
        self.was_given_up = asyncio.Event()

    async def request(self, params: Mapping[str, str]) -> bytes:
        self.asked.append(params)
        self.was_asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.was_given_up.set()
            raise
        if self.error is not None:
            raise self.error
        return params.get("continue", "first").encode()


async def test_a_page_is_asked_for_before_it_is_read() -> None:
    source, tasks = PageSource(), Tasks("test")
    pages = PageRequests(source.request, tasks.spawn, "pods")
    params = dict(SECOND)
    pages.ask(params)
    await source.was_asked.wait()
    params["continue"] = "of the third"
    source.may_answer.set()
    assert await pages.page(params) == b"token"
    assert await pages.page(params) == b"of the third"
    assert source.asked == [SECOND, params]
    await tasks.close(1.0)


async def test_without_tasks_a_page_is_asked_for_when_it_is_read() -> None:
    source = PageSource()
    source.may_answer.set()
    pages = PageRequests(source.request, None, "pods")
    pages.ask(SECOND)
    await asyncio.sleep(0)
    assert not source.asked
    assert await pages.page(SECOND) == b"token"
    pages.end()


@pytest.mark.parametrize("error", [UnreachableError("cut", Cause.CLOSED), ValueError("a bug")])
async def test_an_early_error_is_raised_to_who_reads(error: Exception) -> None:
    failures: list[str] = []
    source = PageSource()
    tasks = Tasks("test", on_failure=lambda name, _: failures.append(name))
    source.error = error
    source.may_answer.set()
    pages = PageRequests(source.request, tasks.spawn, "pods")
    pages.ask(SECOND)
    await source.was_asked.wait()
    with pytest.raises(type(error)):
        await pages.page(SECOND)
    source.error = None
    assert await pages.page(SECOND) == b"token"
    assert not failures
    await tasks.close(1.0)


class KeptBody(bytearray):
    """A body that can be referred to weakly."""


async def refused(pages: PageRequests) -> None:
    pages.ask(SECOND)
    with contextlib.suppress(AnswerTooLargeError):
        await pages.page(SECOND)


async def test_an_early_error_keeps_no_answer_alive() -> None:
    """As a request that has read a page which is too large."""
    bodies: list[weakref.ref[KeptBody]] = []

    async def request(params: Mapping[str, str]) -> bytes:
        body = KeptBody(b"large")
        bodies.append(weakref.ref(body))
        raise AnswerTooLargeError("too large")

    tasks = Tasks("test")
    gc.disable()
    try:
        for _ in range(3):
            await refused(PageRequests(request, tasks.spawn, "pods"))
        await asyncio.sleep(0)
        assert [each() is None for each in bodies] == [True] * 3
    finally:
        gc.enable()
    await tasks.close(1.0)


async def test_a_page_that_is_not_read_is_given_up() -> None:
    source, tasks = PageSource(), Tasks("test")
    pages = PageRequests(source.request, tasks.spawn, "pods")
    pages.ask(SECOND)
    await source.was_asked.wait()
    pages.end()
    pages.end()
    await source.was_given_up.wait()
    await tasks.close(1.0)


async def test_one_object_may_be_as_large_as_an_event() -> None:
    found = [body_limit_of(each) for each in ({}, {"limit": "500"}, {"limit": "1"})]
    assert found == [MAX_RESPONSE_BYTES, PAGE_BYTES, MAX_EVENT_BYTES]
