# SPDX-License-Identifier: Apache-2.0
"""One line per event on stderr: a constant message and fields.

Everything that puts a byte into the log lives here, so that one promise can be kept: the log is
printable ASCII, one event a line. What a peer sends (a header, a name, a certificate's subject)
reaches it escaped, or it could forge lines or drive the operator's terminal.

The sink is one per process, as stderr is; libraries that log through `logging` end up in it too.
A line that cannot be written now is dropped and counted: neither a full disk behind stderr nor a
reader that sleeps may stop the daemon.
"""

from __future__ import annotations

import enum
import select
import sys
import time
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as _quote

# As typing.TYPE_CHECKING: typing, logging and traceback take 2 MB of a process that needs none of them.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40

LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}

# A field is a name, a number or a sentence; a longer text is a page that does not belong here.
MAX_FIELD_CHARACTERS = 1_000
MAX_TRACEBACK_CHARACTERS = 2_500

_LEVEL_NAMES = {number: name for name, number in LEVELS.items()}
_RESERVED = frozenset({"time", "level", "logger", "message"})


class _Sink:
    """Where lines go and in which form. Before `setup`: text at level info."""

    __slots__ = ("clock", "configured", "dropped", "is_json", "level", "set_library_level", "stream")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.level = self.configured = INFO
        self.is_json = False
        self.stream: TextIO | None = None
        self.clock: Callable[[], float] = time.time
        self.dropped = 0
        self.set_library_level: Callable[[int], None] | None = None

    def write(self, level: int, name: str, message: str, fields: dict[str, object]) -> None:
        # Looked up now, not at import: tests and supervisors replace sys.stderr.
        stream = self.stream if self.stream is not None else sys.stderr
        if not _has_room(stream):
            self.dropped += 1
            return
        if self.dropped:
            count, self.dropped = self.dropped, 0
            self._emit(stream, WARNING, __name__, "log lines were dropped", {"count": count})
        self._emit(stream, level, name, message, fields)

    def _emit(self, stream: TextIO, level: int, name: str, message: str, fields: dict[str, object]) -> None:
        render = as_json if self.is_json else as_text
        try:
            stream.write(render(self.clock(), _LEVEL_NAMES[level], name, message, fields) + "\n")
            stream.flush()
        except (OSError, ValueError):
            # ValueError: the stream is closed, so the error cannot be reported.
            return


def _has_room(stream: TextIO) -> bool:
    """Whether a line can be written without waiting for the reader of the log.

    A pipe or socket without a reader fills up, and a write to it would stop the loop for good.
    Room is a page (pipe(7)), which is why fields and traces are cut to fit into one.
    """
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True  # not a file, or closed: the write raises


_sink = _Sink()


class Logger:
    """Writes events of one part of the program. Cheap to make; get one per module with `get`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, message: str, /, **fields: object) -> None:
        if _sink.level <= DEBUG:
            _sink.write(DEBUG, self._name, message, fields)

    def info(self, message: str, /, **fields: object) -> None:
        if _sink.level <= INFO:
            _sink.write(INFO, self._name, message, fields)

    def warning(self, message: str, /, **fields: object) -> None:
        if _sink.level <= WARNING:
            _sink.write(WARNING, self._name, message, fields)

    def error(self, message: str, /, **fields: object) -> None:
        _sink.write(ERROR, self._name, message, fields)


def get(name: str) -> Logger:
    """Return the logger of a module; `name` is its dotted name."""
    return Logger(name)


def setup(
    *,
    is_json: bool | None = None,
    level: str = "info",
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.time,
    has_libraries: bool = True,
) -> None:
    """Choose form and level, and take over the standard library's root logger, where libraries log to it.

    By default lines go to stderr, as text if that is a terminal and as JSON if not (a service
    manager reads it then). `clock` gives seconds since the epoch. Raises `ValueError` on a level
    that is none of `LEVELS`.
    """
    reset()
    _sink.stream = stream
    _sink.clock = clock
    if has_libraries:
        from daemonkit.library_logs import take_over

        _sink.set_library_level = take_over(_sink.write, trace)
    configure(level=level, is_json=is_json)


def configure(*, level: str, is_json: bool | None) -> None:
    """Change the form and the level, and make the latter the one that `restore_level` returns to.

    Raises `ValueError` as `setup` does.
    """
    set_level(level)
    _sink.configured = _sink.level
    stream = _sink.stream if _sink.stream is not None else sys.stderr
    _sink.is_json = not stream.isatty() if is_json is None else is_json


def set_level(level: str) -> None:
    """Log from this level on. Raises `ValueError` on one that is none of `LEVELS`."""
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, got {level!r}")
    _sink.level = LEVELS[level]
    if _sink.set_library_level is not None:
        # Libraries are quieter by one step: their "info" is our "debug".
        _sink.set_library_level(DEBUG if level == "debug" else max(LEVELS[level], WARNING))


def restore_level() -> bool:
    """Return to the configured level; whether another one was set."""
    is_other = _sink.level != _sink.configured
    set_level(configured_level())
    return is_other


def level_name() -> str:
    """The least level that is logged now."""
    return _LEVEL_NAMES[_sink.level]


def configured_level() -> str:
    """The level that `setup` or `configure` set."""
    return _LEVEL_NAMES[_sink.configured]


def reset() -> None:
    """Undo `setup`: text at level info, to whatever stderr is then."""
    _sink.reset()


def trace(error: BaseException) -> str:
    """Return the end of an exception's traceback, for the field `traceback` of an unexpected one."""
    import traceback  # only here, as above

    return "".join(traceback.format_exception(error))[-MAX_TRACEBACK_CHARACTERS:]


def as_text(now: float, level: str, name: str, message: str, fields: dict[str, object]) -> str:
    """Render an event for a person: `time level logger "message" key=value ...`."""
    parts = [_timestamp(now), level.upper(), _word(name), _quote(message)]
    parts.extend(f"{_word(_field_name(key))}={_word(_plain(key, value))}" for key, value in fields.items())
    return " ".join(parts)


def as_json(now: float, level: str, name: str, message: str, fields: dict[str, object]) -> str:
    """Render an event for a machine: one JSON object."""
    parts = [
        f'"time":"{_timestamp(now)}","level":"{level}"',
        f'"logger":{_quote(name)},"message":{_quote(message)}',
    ]
    parts.extend(f"{_quote(_field_name(key))}:{_json(key, value)}" for key, value in fields.items())
    return "{" + ",".join(parts) + "}"


def _timestamp(now: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    return f"{whole}.{int(now * 1000) % 1000:03d}Z"


def _field_name(key: str) -> str:
    return key + "_" if key in _RESERVED else key


def _plain(key: str, value: object) -> str:
    """A value as a string, cut to its limit."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, bytes | bytearray):
        text = value.decode("ascii", "backslashreplace")
    elif isinstance(value, enum.Enum):
        text = str(value.value)
    elif isinstance(value, BaseException):
        text = f"{type(value).__name__}: {value}"
    elif value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, float):
        text = repr(value)
    elif isinstance(value, tuple | list | set | frozenset):
        items = value if isinstance(value, tuple | list) else sorted(value, key=str)
        text = ",".join(_plain(key, item) for item in items)
    else:
        text = str(value)
    limit = MAX_TRACEBACK_CHARACTERS if key == "traceback" else MAX_FIELD_CHARACTERS
    return text if len(text) <= limit else f"{text[:limit]}...(+{len(text) - limit})"


def _word(text: str) -> str:
    """Quote a text unless it is one plain word."""
    is_word = text.isascii() and text.isprintable() and text
    return text if is_word and not any(c in ' "=\\' for c in text) else _quote(text)


def _json(key: str, value: object) -> str:
    if value is None or (isinstance(value, bool | int) and not isinstance(value, enum.Enum)):
        return _plain(key, value)
    if isinstance(value, float) and value - value == 0:  # neither infinite nor NaN
        return _plain(key, value)
    return _quote(_plain(key, value))
