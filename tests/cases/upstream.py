# SPDX-License-Identifier: Apache-2.0
"""Turns the `upstream` of a case into the fake kubelet's reply."""

from collections.abc import Mapping, Sequence
from typing import Any

from devkit.kubelet.pods import FakePod
from devkit.kubelet.replies import Exchange, FakeReply, ReplyEnd, Tunnel, switching
from tests.cases.pages import make_page

_KNOWN = frozenset(
    {
        *("status", "headers", "type", "body", "page", "raw", "trailers", "chunked"),
        *("hang_s", "delay_s", "then", "sink", "echo", "stall", "rst", "cert", "down"),
        *("send", "send_mib", "body_mib", "repeat_s"),
    }
)
_ENDINGS = {
    "silent": ReplyEnd.SILENT,
    "silence": ReplyEnd.SILENT,
    "hang": ReplyEnd.SILENT,
    "close": ReplyEnd.CLOSE,
    "eof": ReplyEnd.CLOSE,
    "abort": ReplyEnd.ABORT,
    "fin": ReplyEnd.ABORT,
    "rst": ReplyEnd.RESET,
    "reset": ReplyEnd.RESET,
    "keep": ReplyEnd.KEEP,
    "open": ReplyEnd.KEEP,
}
CERTIFICATES = frozenset({"self-signed", "rogue", "other-ca", "wrong-name", "expired", "good"})
_MEBIBYTE = 1024 * 1024


def check(raw: Mapping[str, Any]) -> list[str]:
    """A problem for each unknown key or value of a script."""
    problems = [f"harness does not know upstream.{key}" for key in raw if key not in _KNOWN]
    then = raw.get("then")
    if then is not None and str(then) not in _ENDINGS:
        problems.append(f"harness does not know upstream.then: {then!r}")
    if raw.get("cert", "good") not in CERTIFICATES:
        problems.append(f"harness does not know upstream.cert: {raw['cert']!r}")
    return problems


def scripted(raw: Mapping[str, Any], exchange: Exchange, pods: Sequence[FakePod]) -> FakeReply | None:
    """The reply to `exchange`; None where the script keeps the default one.

    Raises PageError.
    """
    if not set(raw) - {"cert", "down"}:
        return None
    ending = _ending(raw)
    delay_s = float(raw.get("hang_s", raw.get("delay_s", 0)))
    if "raw" in raw:
        data = str(raw["raw"]).encode()
        if "then" not in raw and _is_cut_short(data):
            ending = ReplyEnd.CLOSE
        return FakeReply(raw=data, delay_s=delay_s, ending=ending)
    if "hang_s" in raw and not set(raw) - {"hang_s", "then"}:
        return FakeReply(raw=b"", delay_s=delay_s, ending=ReplyEnd.CLOSE)
    tunnel = _tunnel(raw)
    headers = _pairs(raw.get("headers"))
    status = int(raw.get("status", 101 if tunnel is not None else 200))
    if status == 101:
        first = str(raw.get("send", "")).encode() + bytes(int(raw.get("send_mib", 0)) * _MEBIBYTE)
        if not headers:
            headers = switching(exchange, Tunnel.SINK).headers
        return FakeReply(
            101, headers, delay_s=delay_s, tunnel=tunnel or Tunnel.SINK, first_bytes=first, ending=ending
        )
    body = str(raw.get("body", raw.get("send", ""))).encode()
    body += b"b" * (int(raw.get("body_mib", raw.get("send_mib", 0))) * _MEBIBYTE)
    if "page" in raw:
        page = make_page(str(raw["page"]), exchange.path, pods)
        headers = (*headers, *page.headers)
        body = page.body
        if not any(name.lower() == "content-type" for name, _ in headers) and "type" not in raw:
            headers = (("Content-Type", page.content_type), *headers)
        if page.is_cut:
            # Delimited by the end of the connection: only the page itself shows that it is cut.
            return FakeReply(raw=_close_delimited(status, _typed(raw, headers), body), ending=ReplyEnd.CLOSE)
    return FakeReply(
        status,
        _typed(raw, headers),
        body,
        is_chunked=bool(raw.get("chunked", False)),
        trailers=_pairs(raw.get("trailers")),
        delay_s=delay_s,
        repeat_every_s=raw.get("repeat_s"),
        ending=ending,
    )


def is_ended_by_kubelet(raw: Mapping[str, Any]) -> bool:
    """Whether the script ends the connection: then it reads nothing of what the client sends."""
    return _ending(raw) in {ReplyEnd.CLOSE, ReplyEnd.ABORT, ReplyEnd.RESET}


def _ending(raw: Mapping[str, Any]) -> ReplyEnd:
    if raw.get("rst"):
        return ReplyEnd.RESET
    return _ENDINGS[str(raw["then"])] if "then" in raw else ReplyEnd.KEEP


def _tunnel(raw: Mapping[str, Any]) -> Tunnel | None:
    for word, tunnel in (("echo", Tunnel.ECHO), ("sink", Tunnel.SINK), ("stall", Tunnel.STALL)):
        if raw.get(word):
            return tunnel
    return None


def _typed(raw: Mapping[str, Any], headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return (("Content-Type", str(raw["type"])), *headers) if "type" in raw else headers


def _pairs(raw: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(raw, Mapping):
        return tuple((str(name), str(value)) for name, value in raw.items())
    lines = [raw] if isinstance(raw, str) else raw or ()
    return tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))


def _close_delimited(status: int, headers: tuple[tuple[str, str], ...], body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status} OK", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode() + body


def _is_cut_short(data: bytes) -> bool:
    """Whether only the end of the connection can end this reply: then a kubelet ends it."""
    head, blank, body = data.partition(b"\r\n\r\n")
    lowered = head.lower()
    if not blank or b"transfer-encoding" in lowered:
        return not blank
    for line in lowered.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length" and value.strip().isdigit():
            return len(body) < int(value)
    return not lowered.startswith(b"http/1.1 1")
