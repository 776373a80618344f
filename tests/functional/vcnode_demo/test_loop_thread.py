# SPDX-License-Identifier: Apache-2.0
"""The demo's loop on a thread returns results and raises errors."""

import asyncio
import threading

import pytest

from vcnode.terminal import ToolError
from vcnode_demo import loop_thread
from vcnode_demo.loop_thread import LoopThread


async def name() -> str:
    return threading.current_thread().name


async def never() -> None:
    await asyncio.Event().wait()


async def wrong() -> None:
    raise LookupError("not there")


def test_run_returns_the_result_or_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = LoopThread("kubelet")
    assert not thread.is_running
    thread.start()
    try:
        assert thread.run(name()) == "kubelet"
        with pytest.raises(LookupError, match="not there"):
            thread.run(wrong())
        monkeypatch.setattr(loop_thread, "_DEADLINE_S", 0.05)
        with pytest.raises(ToolError, match="the fake kubelet did not finish in time"):
            thread.run(never())
        monkeypatch.setattr(loop_thread, "_DEADLINE_S", 30.0)
        assert thread.run(name()) == "kubelet", "it goes on"
    finally:
        thread.stop()
    assert not thread.is_running
    thread.stop()
