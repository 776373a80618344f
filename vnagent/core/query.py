# SPDX-License-Identifier: Apache-2.0
"""Query strings: parsed strictly into known parameters, written anew for the kubelet.

Go and Python disagree about `;`, bad escapes and repeated keys, and the kubelet reads a parameter it
gets twice in its own way. So each endpoint has its list of parameters, each parameter its grammar,
and anything else is refused instead of being passed on or dropped.
"""

import binascii
import re
from collections.abc import Callable
from urllib.parse import quote_plus

# kubectl sends a few dozen at most; a command line of this many words is an attack on memory.
MAX_PARAMETERS = 1000

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_COUNT = re.compile(r"[0-9]{1,18}")
# RFC 3339, 5.6, upper case as Kubernetes writes it.
_RFC3339 = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]{1,9})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_TRUE = frozenset({"true", "1"})
_BOOLEANS = frozenset({"true", "false", "1", "0"})


class QueryError(Exception):
    """A query that is refused; `status` is the answer to its sender."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


Options = tuple[tuple[str, str], ...]


def split_query(query: str) -> list[tuple[str, str]]:
    """Split and decode `a=b&c=d`. Values are text in which each character is one byte (latin-1): a
    command may hold any byte but NUL. Raises QueryError."""
    if not query:
        return []
    if not query.isascii() or ";" in query or ("%" in query and _BAD_ESCAPE.search(query)):
        raise QueryError("malformed-query")
    if query.count("&") >= MAX_PARAMETERS:
        raise QueryError("too-many-parameters")
    return [_pair(part) for part in query.split("&")]


def _pair(part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not equals or not key:
        raise QueryError("malformed-query")
    if "%" in value or "+" in value:
        value = _unescaped(value)
    if "\0" in value:
        raise QueryError("malformed-query")
    return key, value


def _unescaped(value: str) -> str:
    """Decode escapes that are all well-formed, and `+`.

    By the decoder of quoted-printable, whose escapes differ in the sign alone: a command of 180 KB that is
    all escapes takes 3 ms, and 50 ms by `urllib.parse.unquote_to_bytes`.
    """
    text = value.replace("+", " ").replace("=", "=3D").replace("%", "=")
    return binascii.a2b_qp(text.encode("ascii")).decode("latin-1")


def render_query(options: Options) -> str:
    """Write parameters for the kubelet, `?` included, escaped as Go's url.QueryEscape does."""
    if not options:
        return ""
    return "?" + "&".join([f"{key}={_escaped(value)}" for key, value in options])


def _escaped(value: str) -> str:
    if value.isascii() and value.isalnum():
        return value  # numbers and booleans, as in most requests
    return quote_plus(value, encoding="latin-1")


def _is_boolean(value: str) -> bool:
    return value in _BOOLEANS


def _is_count(value: str) -> bool:
    return _COUNT.fullmatch(value) is not None and int(value) < 2**63


def _is_positive(value: str) -> bool:
    return _is_count(value) and int(value) > 0


def _is_port(value: str) -> bool:
    return _is_positive(value) and int(value) < 65536


def _is_tail(value: str) -> bool:
    return value == "all" or _is_count(value)


def _is_stream(value: str) -> bool:
    return value in {"All", "Stdout", "Stderr"}


def _is_time(value: str) -> bool:
    return _RFC3339.fullmatch(value) is not None


# v1 PodLogOptions as the kubelet's containerLogs reads them.
_LOG_OPTIONS: dict[str, Callable[[str], bool]] = {
    "follow": _is_boolean,
    "previous": _is_boolean,
    "timestamps": _is_boolean,
    "sinceSeconds": _is_positive,
    "sinceTime": _is_time,
    "tailLines": _is_count,
    "tail": _is_tail,
    "limitBytes": _is_positive,
    "stream": _is_stream,
}
_STREAM_OPTIONS: dict[str, Callable[[str], bool]] = {
    "input": _is_boolean,
    "output": _is_boolean,
    "error": _is_boolean,
    "tty": _is_boolean,
}


def parse_log_options(query: str) -> tuple[Options, bool]:
    """Read the parameters of containerLogs; the second value is whether the log is followed.

    Raises QueryError: 400 for what does not parse, 422 for what cannot be combined (as the kubelet).
    """
    seen: dict[str, str] = {}
    for key, value in split_query(query):
        is_valid = _LOG_OPTIONS.get(key)
        if is_valid is None:
            raise QueryError("unknown-parameter")
        if key in seen:
            raise QueryError("repeated-parameter")
        if not is_valid(value):
            raise QueryError("malformed-parameter")
        seen[key] = value
    if "sinceSeconds" in seen and "sinceTime" in seen:
        raise QueryError("conflicting-parameters", 422)
    if "tail" in seen:
        # The parameter's name before PodLogOptions; "all" is the default.
        tail = seen.pop("tail")
        if "tailLines" in seen:
            raise QueryError("conflicting-parameters", 422)
        if tail != "all":
            seen["tailLines"] = tail
    return tuple(seen.items()), seen.get("follow") in _TRUE


def parse_stream_options(query: str, *, is_exec: bool, is_forward: bool) -> Options:
    """Read the parameters of exec (`command` may repeat), attach or portForward. Raises QueryError."""
    grammar = {"port": _is_port} if is_forward else _STREAM_OPTIONS
    options = split_query(query)
    seen = set()
    for key, value in options:
        if is_exec and key == "command":
            continue
        is_valid = grammar.get(key)
        if is_valid is None:
            raise QueryError("unknown-parameter")
        if key in seen and not is_forward:
            raise QueryError("repeated-parameter")
        if not is_valid(value):
            raise QueryError("malformed-parameter")
        seen.add(key)
    return tuple(options)


def parse_page_options(query: str) -> bool:
    """Read the one parameter of stats/summary: whether only CPU and memory are wanted."""
    options = split_query(query)
    for key, value in options:
        if key != "only_cpu_and_memory":
            raise QueryError("unknown-parameter")
        if not _is_boolean(value):
            raise QueryError("malformed-parameter")
    if len(options) > 1:
        raise QueryError("repeated-parameter")
    return bool(options) and options[0][1] in _TRUE
