# SPDX-License-Identifier: Apache-2.0
"""What the threads of a run report: answers, violations and lives of load. One per run."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.soak.answers import OK, LoadAnswer, Violation
from vcnode.terminal import ToolError
from vcnode_demo.tenant_client import RefusedError

# A broken run fails alike for each request: the first ones tell.
_MOST_VIOLATIONS = 500
_MOST_FAILURES = 100_000


class LeakError(Exception):
    """An answer has a word of another tenant's, or of the super cluster's. No fault excuses it."""


class Recorder:
    """Thread-safe. `now_s` counts from the begin of the run."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self.counts: Counter[tuple[str, str]] = Counter()
        self._failures: list[LoadAnswer] = []
        self._violations: list[Violation] = []
        self._is_full = False

    def now_s(self) -> float:
        return time.monotonic() - self._began_s

    def add(self, answer: LoadAnswer) -> None:
        """Count an answer, and keep it if it is a failure."""
        with self._lock:
            self.counts[answer.kind, answer.outcome] += 1
            if answer.outcome == OK:
                return
            if len(self._failures) < _MOST_FAILURES:
                self._failures.append(answer)
            elif not self._is_full:
                self._is_full = True
                text = f"more than {_MOST_FAILURES} requests failed: later ones were not judged"
                self._violations.append(Violation(answer.end_s, text))

    def violation(self, text: str) -> None:
        """Something that no fault excuses."""
        with self._lock:
            if len(self._violations) < _MOST_VIOLATIONS:
                self._violations.append(Violation(self.now_s(), text))

    def failures(self) -> Sequence[LoadAnswer]:
        with self._lock:
            return tuple(self._failures)

    def violations(self) -> Sequence[Violation]:
        with self._lock:
            return tuple(self._violations)

    def ask(self, kind: str, tenant: str, call: Callable[[], str], *, since_s: float | None = None) -> bool:
        """Make a request, which returns its outcome; return whether it is `ok`.

        `since_s` is when a stream that goes on was well the last time.
        """
        begin_s = self.now_s() if since_s is None else since_s
        try:
            outcome = call()
        except LeakError as leak:
            self.violation(f"{kind} of {tenant}: {leak}")
            outcome = f"leak: {leak}"
        except RefusedError as error:
            outcome = f"cut: {error}"
        except OSError as error:
            outcome = f"cut: {error.strerror or error}"
        except (ToolError, ValueError, StopIteration, IndexError) as error:
            outcome = f"broken: {error!r}"
        self.add(LoadAnswer(begin_s, self.now_s(), kind, tenant, outcome))
        return outcome == OK
