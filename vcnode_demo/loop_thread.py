# SPDX-License-Identifier: Apache-2.0
"""An event loop on a thread of its own, for fakes that serve while the scenarios run."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from vcnode.terminal import ToolError

_DEADLINE_S = 10.0

T = TypeVar("T")


class LoopThread:
    """`start`, `run` coroutines on it, `stop`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for it. Raises ToolError after a deadline, and its own exceptions."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(_DEADLINE_S)
        except TimeoutError:
            future.cancel()
            raise ToolError(f"the fake {self._name} did not finish in time") from None

    def stop(self) -> None:
        """End the thread. May be called twice."""
        if self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_DEADLINE_S)
        self._thread = None
        self._loop.close()
