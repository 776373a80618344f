# SPDX-License-Identifier: Apache-2.0
"""A client in a process of its own: its first line says that it has begun, and SIGTERM has it print what it
found as JSON."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.k8s.ring.processes import RingError

_ENDED_S = 60.0


@contextmanager
def running(name: str, argv: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The client works within; what it found is in the dictionary afterwards.

    Raises:
        RingError: it did not begin; the text has what it printed.
    """
    found: dict[str, Any] = {}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RingError(f"{name}: {process.communicate(timeout=_ENDED_S)[1]}")
        yield found
        process.send_signal(signal.SIGTERM)
        found.update(json.loads(process.communicate(timeout=_ENDED_S)[0]))
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=_ENDED_S)
