# SPDX-License-Identifier: Apache-2.0
"""Query strings: known parameters are parsed strictly and written anew for the kubelet, others are ignored.

Each endpoint has its list of parameters, each parameter its grammar. What is decided and what the kubelet
gets are the same values, in one form each. What Go and Python, or two kubelets, read in different ways is
refused: `;`, bad escapes, a parameter that comes twice. Unknown parameters a kubelet ignores, and clients
send some to each endpoint (client-go `timeout`, others `pretty`): they go no further.
"""

import binascii
import re
from collections.abc import Callable, Iterable
from urllib.parse import quote_plus

# kubectl sends a few dozen at most; a command line of this many words is an attack on memory.
MAX_PARAMETERS = 1000

# RFC 3986, 3.4, without `;`. What has another character is no request target.
QUERY_PATTERN = r"[A-Za-z0-9._~!$&'()*+,=:@/?%\-]*+"

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_COUNT = re.compile(r"[0-9]{1,18}")
# RFC 3339, 5.6, upper case as Kubernetes writes it.
_RFC3339 = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]{1,9})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)


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
    # Go's url.ParseQuery leaves out empty parts.
    return [_pair(part) for part in query.split("&") if part]


def _pair(part: str) -> tuple[str, str]:
    # A name alone has the empty value, in Go too.
    key, _, value = part.partition("=")
    if "%" in key or "+" in key:
        key = _unescaped(key)
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
    "sinceSeconds": _is_positive,
    "sinceTime": _is_time,
    "tailLines": _is_count,
    "tail": _is_tail,
    "limitBytes": _is_positive,
    "stream": _is_stream,
}
_LOG_BOOLEANS = frozenset({"follow", "previous", "timestamps"})
_STREAM_FLAGS = frozenset({"input", "output", "error", "tty"})


def _log_boolean(value: str) -> str:
    """As apimachinery's Convert_Slice_string_To_bool: "0" and "false" in any case are false, all else is
    true, also the empty value."""
    return "false" if value == "0" or value.lower() == "false" else "true"


def _is_set(value: str) -> bool:
    """A flag of a stream or page. A kubelet knows "1" or "true"; clients in other languages write "True"."""
    return value == "1" or value.lower() == "true"


def parse_log_options(query: str) -> tuple[Options, bool]:
    """Read the parameters of containerLogs; the second value is whether the log is followed.

    Raises QueryError: 400 for what does not parse, 422 for what cannot be combined (as the kubelet).
    """
    seen: dict[str, str] = {}
    for key, value in split_query(query):
        is_valid = _LOG_OPTIONS.get(key)
        if is_valid is None and key not in _LOG_BOOLEANS:
            continue
        if key in seen:
            raise QueryError("repeated-parameter")
        if is_valid is not None and not is_valid(value):
            raise QueryError("malformed-parameter")
        seen[key] = value if is_valid is not None else _log_boolean(value)
    if "sinceSeconds" in seen and "sinceTime" in seen:
        raise QueryError("conflicting-parameters", 422)
    if "tail" in seen:
        # The parameter's name before PodLogOptions; "all" is the default.
        tail = seen.pop("tail")
        if "tailLines" in seen:
            raise QueryError("conflicting-parameters", 422)
        if tail != "all":
            seen["tailLines"] = tail
    return tuple(seen.items()), seen.get("follow") == "true"


def parse_stream_options(query: str, *, is_exec: bool, is_forward: bool) -> Options:
    """Read the parameters of exec (`command` may repeat), attach or portForward. Raises QueryError."""
    given = split_query(query)
    if is_forward:
        return _ports(value for key, value in given if key == "port")
    options: list[tuple[str, str]] = []
    seen = set()
    for key, value in given:
        if key in _STREAM_FLAGS:
            if key in seen:
                raise QueryError("repeated-parameter")
            seen.add(key)
            options.append((key, "1" if _is_set(value) else "0"))
        elif is_exec and key == "command":
            options.append((key, value))
    return tuple(options)


def _ports(values: Iterable[str]) -> Options:
    """kube-apiserver joins the ports of a WebSocket with commas (`streamParams`)."""
    ports = [port for value in values for port in value.split(",", MAX_PARAMETERS)]
    if len(ports) > MAX_PARAMETERS:
        raise QueryError("too-many-parameters")
    if not all(map(_is_port, ports)):
        raise QueryError("malformed-parameter")
    return tuple(("port", port) for port in ports)


def parse_page_options(query: str) -> bool:
    """Read the one parameter of stats/summary: whether only CPU and memory are wanted. No decision depends
    on it, so what cannot be read is ignored, as on the other pages."""
    try:
        values = [value for key, value in split_query(query) if key == "only_cpu_and_memory"]
    except QueryError:
        return False
    return len(values) == 1 and _is_set(values[0])
