# SPDX-License-Identifier: Apache-2.0
"""Brings what libraries log through `logging` into the sink of `daemonkit.logs`."""

import logging
from collections.abc import Callable

MAX_MESSAGE_CHARACTERS = 1_000
# Those that the sink has, and no others.
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)

_WriteEvent = Callable[[int, str, str, dict[str, object]], None]


def take_over(write: _WriteEvent, trace: Callable[[BaseException], str]) -> Callable[[int], None]:
    """Let the root logger write by `write`, and tracebacks by `trace`. Returns what sets its level."""
    root = logging.getLogger()
    root.handlers[:] = [_Bridge(write, trace)]
    return root.setLevel


class _Bridge(logging.Handler):
    def __init__(self, write: _WriteEvent, trace: Callable[[BaseException], str]) -> None:
        super().__init__()
        self._write = write
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = {}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = record.exc_info[1]
            fields["traceback"] = self._trace(record.exc_info[1])
        level = max((known for known in _LEVELS if known <= record.levelno), default=logging.DEBUG)
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = str(record.msg)
        self._write(level, record.name, message[:MAX_MESSAGE_CHARACTERS], fields)
