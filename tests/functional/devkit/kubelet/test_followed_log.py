# SPDX-License-Identifier: Apache-2.0
"""A followed log of the fake kubelet has each line once, also one that comes while another one is written."""

import asyncio
import contextlib
from typing import Any, cast

import pytest

from devkit.kubelet.connection import FakeKubeletConnection
from devkit.kubelet.replies import Exchange, FakeReply

pytestmark = [pytest.mark.functional, pytest.mark.asyncio]

KEY = ("shop", "web", "app")
REQUEST = b"GET /containerLogs/shop/web/app?follow=true HTTP/1.1\r\nHost: node\r\n\r\n"


class GrowingLog:
    """Follows one log."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.lines: list[str] = []

    def answer(self, _: Exchange) -> FakeReply:
        return FakeReply(follows=KEY)

    def log_lines(self, _: tuple[str, str, str]) -> list[str]:
        return self.lines

    def until_next_line(self, until: asyncio.Timeout) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Writer:
    """A pod writes its next line as soon as its reader has one; the reader leaves after three."""

    def __init__(self, kubelet: GrowingLog, reader: asyncio.StreamReader) -> None:
        self._kubelet = kubelet
        self._reader = reader
        self.received = b""

    def write(self, data: bytes) -> None:
        self.received += bytes(data)
        written = len(self._kubelet.lines)
        if written < 3:
            self._kubelet.lines.append(f"line {written + 1}")
        elif b"line 3" in self.received:
            self._reader.feed_eof()

    async def drain(self) -> None:
        pass

    def get_extra_info(self, _: str) -> Any:
        return None


async def test_lines_that_come_while_one_is_written_are_sent() -> None:
    kubelet, reader = GrowingLog(), asyncio.StreamReader()
    writer = Writer(kubelet, reader)
    reader.feed_data(REQUEST)
    connection = FakeKubeletConnection(kubelet, 1, reader, cast("asyncio.StreamWriter", writer))
    await asyncio.wait_for(connection.exchange(), 5.0)
    head, _, body = writer.received.partition(b"\r\n\r\n")
    assert head == b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked"
    assert body == b"7\r\nline 1\n\r\n7\r\nline 2\n\r\n7\r\nline 3\n\r\n"
