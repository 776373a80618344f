# SPDX-License-Identifier: Apache-2.0
"""vn-agent's event loop: the daemons', with a selector that calls the callbacks of sockets itself."""

import asyncio
import contextvars
import selectors
from collections.abc import Callable
from typing import TypeVarTuple, cast

from daemonkit.run.event_loop import DaemonLoop
from vnagent.transport.selector import CallbackSelector, DescriptorWatcher, LoopWatcher

CallArguments = TypeVarTuple("CallArguments")


class AgentLoop(DaemonLoop):
    """Its selector learns of each call and timer that is scheduled, as `select` returns for them.

    In the loop's thread, asyncio schedules by the methods below alone. Other threads and signals write to a
    pipe, which is registered with the selector.
    """

    def __init__(self) -> None:
        self.callbacks = CallbackSelector(self._report)
        # Compiled code cannot derive from `BaseSelector`; asyncio only calls its methods.
        super().__init__(cast(selectors.BaseSelector, self.callbacks))

    def call_soon(
        self,
        callback: Callable[[*CallArguments], object],
        *args: *CallArguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        self.callbacks.has_scheduled = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*CallArguments], object],
        *args: *CallArguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        self.callbacks.has_scheduled = True
        return super().call_at(when, callback, *args, context=context)

    def stop(self) -> None:
        self.callbacks.has_scheduled = True
        super().stop()

    def _report(self, error: BaseException) -> None:
        self.call_exception_handler({"message": "the callback of a descriptor failed", "exception": error})


def watcher_of(loop: asyncio.AbstractEventLoop) -> DescriptorWatcher:
    """The selector of an `AgentLoop`, or what watches by another loop's own handles."""
    return loop.callbacks if isinstance(loop, AgentLoop) else LoopWatcher(loop)
