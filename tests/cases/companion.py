# SPDX-License-Identifier: Apache-2.0
"""The well-behaved neighbour: requests of ten-b beside a case, each timed (invariant I3), and the
agent's memory watched meanwhile (I8)."""

import threading
import time

from tests.cases.client import SendFailed
from tests.cases.daemon import DaemonError
from tests.cases.replies import BadReplyError
from tests.cases.stage import COMPANION_MARK, Stage

_EVERY_S = 0.8
_SAMPLE_S = 0.05
# Much more than the limit, so that a late reply is told from none.
_PATIENCE_S = 15.0
REQUEST = (
    f"GET /containerLogs/web/bank/app?{COMPANION_MARK} HTTP/1.1\r\n"
    "Host: node-1:10550\r\nConnection: close\r\n\r\n"
)


class Companion:
    """Runs from `start` to `stop`; at least one request is made while the case is on."""

    def __init__(self, stage: Stage, identity: str) -> None:
        self._stage = stage
        self._identity = identity
        self._is_over = threading.Event()
        self._may_ask = threading.Event()
        self._may_ask.set()
        self._asking = threading.Lock()
        self.asked: list[tuple[float, int | None, str]] = []
        self.peak_kib = 0
        self._threads = [
            threading.Thread(target=self._ask_on, name="companion", daemon=True),
            threading.Thread(target=self._watch_memory, name="memory", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._may_ask.set()
        for thread in self._threads:
            thread.join(_PATIENCE_S * 2)

    def hold(self) -> None:
        """Make no request until `go_on`: the clock is about to jump under it."""
        self._may_ask.clear()
        with self._asking:
            pass  # the one under way has ended

    def go_on(self) -> None:
        self._may_ask.set()

    def _ask_on(self) -> None:
        while True:
            self._may_ask.wait()
            with self._asking:
                if self._may_ask.is_set():  # not held since
                    self.asked.append(self._ask())
            if self._is_over.wait(_EVERY_S):
                return

    def _ask(self) -> tuple[float, int | None, str]:
        begin = time.monotonic()
        try:
            status, data = self._stage.ask(self._identity, REQUEST, _PATIENCE_S)
        except (OSError, BadReplyError, SendFailed) as problem:
            return time.monotonic() - begin, None, str(problem)
        return time.monotonic() - begin, status, data[:200].decode("latin-1")

    def _watch_memory(self) -> None:
        while not self._is_over.wait(_SAMPLE_S):
            try:
                self.peak_kib = max(self.peak_kib, self._stage.daemon.resident_kib())
            except DaemonError:
                return
