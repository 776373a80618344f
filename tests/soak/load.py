# SPDX-License-Identifier: Apache-2.0
"""Threads of load: each makes rounds of requests, and rests as long as a round took."""

import threading
from collections.abc import Callable

from tests.soak.recorder import Recorder

# A thread is busy for half of the time at most, so that a slow machine only makes fewer rounds.
_LEAST_REST_S = 0.1
_MOST_REST_S = 1.0
_END_S = 240.0


class LoadThread:
    """`start`, `stop`. `round_` returns whether all its requests succeeded.

    A round that `is_patient` waits until a fault is over, so the fault does not wait for it.
    """

    def __init__(
        self,
        name: str,
        recorder: Recorder,
        round_: Callable[[], bool],
        close: Callable[[], None] = lambda: None,
        *,
        least_rest_s: float = _LEAST_REST_S,
        is_patient: bool = False,
    ) -> None:
        self.name = name
        self.is_patient = is_patient
        self._recorder = recorder
        self._round = round_
        self._close = close
        self._least_rest_s = least_rest_s
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        # When the last finished round began, and the last one that succeeded.
        self.last_begin_s = -1.0
        self.last_ok_begin_s = -1.0
        self.rounds = 0

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Ask it to end after its round."""
        self._is_ending.set()

    def stop(self) -> None:
        """End it, and wait for that. Raises RuntimeError where its round does not end."""
        self.end()
        self._thread.join(_END_S)
        if self._thread.is_alive():
            raise RuntimeError(f"{self.name} did not end its round")
        self._close()

    def _run(self) -> None:
        while not self._is_ending.is_set():
            begin_s = self._recorder.now_s()
            try:
                is_ok = self._round()
            except Exception as error:  # noqa: BLE001 - a thread that ends would silence its load
                self._recorder.violation(f"the load {self.name} is broken: {error!r}")
                is_ok = False
            took_s = self._recorder.now_s() - begin_s
            self.last_begin_s = begin_s
            if is_ok:
                self.last_ok_begin_s = begin_s
            self.rounds += 1
            self._is_ending.wait(min(_MOST_REST_S, max(self._least_rest_s, took_s)))
