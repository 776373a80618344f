# SPDX-License-Identifier: Apache-2.0
"""Parses a case's `then` into steps, before anything runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.cases.admin import AdminAction, AdminError, parse_admin
from tests.cases.case_file import join
from tests.cases.frames import FrameError, make_frame

_MEBIBYTE = 1024 * 1024


class StepError(Exception):
    """The harness does not know this step."""


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes, by a function so that a large block exists only while it is sent."""

    data: Callable[[], bytes]
    times: int = 1
    is_parallel: bool = False  # sent while the client waits for the reply


@dataclass(frozen=True, slots=True)
class Drip:
    data: bytes
    every_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass; with `is_reading` the client receives meanwhile."""

    seconds: float
    is_reading: bool = True


@dataclass(frozen=True, slots=True)
class Close:
    """How the client ends: close, reset, half (close_notify and FIN), fin."""

    how: str = "close"


@dataclass(frozen=True, slots=True)
class Admin:
    actions: tuple[AdminAction, ...]


@dataclass(frozen=True, slots=True)
class Advance:
    seconds: float


@dataclass(frozen=True, slots=True)
class OtherRequest:
    """A request on a connection of its own, perhaps by another identity."""

    identity: str | None
    text: str
    status: tuple[int, ...] = ()


CaseStep = Send | Drip | Wait | Close | Admin | Advance | OtherRequest

_CLOSES = {
    True: "close",
    "true": "close",
    "close": "close",
    "close_notify": "close",
    "rst": "reset",
    "reset": "reset",
    "half": "half",
    "half-close": "half",
    "write": "half",
    "fin": "fin",
    "abrupt": "reset",
}


def parse_steps(raw_steps: Sequence[Mapping[str, Any]], host: str) -> list[CaseStep]:
    """All steps of a case. Raises StepError for the first unknown one."""
    return [_parse(raw, host) for raw in raw_steps]


def _parse(raw: Mapping[str, Any], host: str) -> CaseStep:
    keys = set(raw) - {"note"}
    step = _simple(raw, keys)
    if step is not None:
        return step
    if keys <= {"as", "request", "status", "expect"} and "request" in keys:
        return _other(raw, host)
    raise StepError(f"harness does not know the step {dict(raw)!r}")


def _simple(raw: Mapping[str, Any], keys: set[str]) -> CaseStep | None:
    def block(size: int) -> Callable[[], bytes]:
        return lambda: bytes(i % 251 for i in range(251)) * (size // 251) + b"z" * (size % 251)

    match sorted(keys):
        case ["send"]:
            return Send(str(raw["send"]).encode)
        case ["send_mib"]:
            return Send(block(_MEBIBYTE), int(raw["send_mib"]), is_parallel=True)
        case ["send_kib"]:
            return Send(block(int(raw["send_kib"]) * 1024))
        case ["send_bytes"]:
            return Send(block(int(raw["send_bytes"])))
        case ["frame"] | ["frame", "repeat"]:
            return _frame(raw)
        case ["drip", "every_s"] | ["drip"]:
            return Drip(str(raw["drip"]).encode(), float(raw.get("every_s", 1)))
        case ["wait_s"] | ["wait"]:
            return Wait(float(raw.get("wait_s", raw.get("wait", 0))))
        case ["stop_reading_s"] | ["pause_reading_s"] | ["no_read_s"]:
            return Wait(float(next(raw[key] for key in keys)), is_reading=False)
        case ["close"]:
            if raw["close"] not in _CLOSES:
                raise StepError(f"harness does not know close: {raw['close']!r}")
            return Close(_CLOSES[raw["close"]])
        case ["half_close"]:
            return Close("half")
        case ["reset"] | ["rst"]:
            return Close("reset")
        case ["admin"]:
            try:
                return Admin(tuple(parse_admin(str(raw["admin"]))))
            except AdminError as problem:
                raise StepError(str(problem)) from problem
        case ["advance_clock_s"]:
            return Advance(float(raw["advance_clock_s"]))
    return None


def _frame(raw: Mapping[str, Any]) -> Send:
    try:
        data = make_frame(str(raw["frame"]))
    except FrameError as problem:
        raise StepError(str(problem)) from problem
    return Send(lambda: data, int(raw.get("repeat", 1)))


def _other(raw: Mapping[str, Any], host: str) -> OtherRequest:
    request = raw["request"]
    headers: Sequence[str] = (f"Host: {host}",)
    body = ""
    if isinstance(request, Mapping):
        unknown = set(request) - {"line", "headers", "body", "raw"}
        if unknown:
            raise StepError(f"harness does not know {sorted(unknown)} of a step's request")
        if "raw" in request:
            return OtherRequest(raw.get("as"), str(request["raw"]), _status(raw))
        headers, body = request.get("headers", headers), request.get("body", "")
        request = request["line"]
    return OtherRequest(raw.get("as"), join(str(request), headers, body), _status(raw))


def _status(raw: Mapping[str, Any]) -> tuple[int, ...]:
    expect = raw.get("expect") or {}
    if not isinstance(expect, Mapping) or set(expect) - {"status"}:
        raise StepError(f"harness does not know the step's expect {expect!r}")
    status = expect.get("status", raw.get("status", ()))
    return tuple(status) if isinstance(status, list | tuple) else (int(status),)
