# SPDX-License-Identifier: Apache-2.0
"""Names whose name server does not answer keep no thread that others need."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from daemonkit.kube.foreign_hosts import MAX_NAMES, ForeignNames
from daemonkit.tasks import Tasks

pytestmark = pytest.mark.asyncio


class SilentNames:
    """Names that begin with `silent` are resolved when the test says so, and then there is none."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.asked: list[str] = []

    def resolve(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        if host.startswith("silent"):
            self.go_on.wait()
            raise OSError(f"{host} has no address")
        return [(2, 1, 6, "", ("192.0.2.7", port))]


async def test_silent_names_hold_up_nobody() -> None:
    """More imports than the process has threads are asked about again and again."""
    silent = SilentNames()
    names = ForeignNames(silent.resolve)
    tasks = Tasks("imports")
    try:
        for _ in range(5):
            for number in range(MAX_NAMES - 1):
                tasks.spawn(names.lookup(f"silent{number}", 6443), "lookup")
            await asyncio.sleep(0)
            await tasks.close(1.0)
            tasks = Tasks("imports")
        assert await names.lookup("well", 6443) == ["192.0.2.7"]
        assert len(silent.asked) == MAX_NAMES
        # What the process resolves for itself, or does in threads, waits for none of them.
        assert await asyncio.to_thread(int, "7") == 7
        waiting = Tasks("imports").spawn(_failure(names, "silent0"), "lookup")
    finally:
        silent.go_on.set()
    assert await waiting == "silent0 has no address"
    # It is resolved anew.
    assert await _failure(names, "silent0") == "silent0 has no address"
    assert silent.asked.count("silent0") == 2


async def _failure(names: ForeignNames, host: str) -> str:
    try:
        await names.lookup(host, 6443)
    except OSError as error:
        return str(error)
    return ""
