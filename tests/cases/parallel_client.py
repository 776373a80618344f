# SPDX-License-Identifier: Apache-2.0
"""Makes and times requests of ten-b while a case runs (invariant I3), and samples the agent's memory (I8)."""

import threading
import time

from tests.cases.client import SendFailed
from tests.cases.daemon import DaemonError
from tests.cases.environment import PARALLEL_MARK, AgentEnvironment
from tests.cases.replies import BadReplyError

_EVERY_S = 0.8
_SAMPLE_S = 0.05
# Far above the limit: it separates a late reply from a missing one.
_TIMEOUT_S = 15.0
REQUEST = (
    f"GET /containerLogs/web/bank/app?{PARALLEL_MARK} HTTP/1.1\r\n"
    "Host: node-1:10550\r\nConnection: close\r\n\r\n"
)


class ParallelClient:
    """Runs from `start` to `stop`, and makes one request at least."""

    def __init__(self, environment: AgentEnvironment, identity: str) -> None:
        self._environment = environment
        self._identity = identity
        self._is_over = threading.Event()
        self._may_request = threading.Event()
        self._may_request.set()
        self._request_lock = threading.Lock()
        self.results: list[tuple[float, int | None, str]] = []
        self.peak_kib = 0
        self._threads = [
            threading.Thread(target=self._run, name="parallel-client", daemon=True),
            threading.Thread(target=self._watch_memory, name="memory", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._may_request.set()
        for thread in self._threads:
            thread.join(_TIMEOUT_S * 2)

    def pause(self) -> None:
        """Wait for the open request, and make none until `resume`: the clock is about to jump."""
        self._may_request.clear()
        with self._request_lock:
            pass

    def resume(self) -> None:
        self._may_request.set()

    def _run(self) -> None:
        while True:
            self._may_request.wait()
            with self._request_lock:
                if self._may_request.is_set():  # not paused meanwhile
                    self.results.append(self._request())
            if self._is_over.wait(_EVERY_S):
                return

    def _request(self) -> tuple[float, int | None, str]:
        begin = time.monotonic()
        try:
            status, data = self._environment.request(self._identity, REQUEST, _TIMEOUT_S)
        except (OSError, BadReplyError, SendFailed) as problem:
            return time.monotonic() - begin, None, str(problem)
        return time.monotonic() - begin, status, data[:200].decode("latin-1")

    def _watch_memory(self) -> None:
        while not self._is_over.wait(_SAMPLE_S):
            try:
                self.peak_kib = max(self.peak_kib, self._environment.daemon.resident_kib())
            except DaemonError:
                return
