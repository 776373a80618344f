# SPDX-License-Identifier: Apache-2.0
"""What a person asks by annotations of a VirtualCluster. Pure.

A value that cannot be used asks for nothing, and is a problem with its remedy. All of them are looked at, so
that one wrong value hides no other request.
"""

import datetime as dt
from collections.abc import Collection, Iterable, Mapping

import msgspec

from tenancy import keys, names
from tenant_operator.model.problem import SpecProblem

# The clock of the person's machine may be ahead of ours.
MAX_AHEAD_S = 300.0
MAX_NAME_CHARS = 253
MAX_TOKEN_CHARS = 63
# As a label's value.
MAX_BACKUP_CHARS = 63
_MAX_TIME_CHARS = 40
_FIRST_YEAR = 1971
_MAX_SHOWN_CHARS = 60
_MAX_ROTATIONS = 16


class Requests(msgspec.Struct, frozen=True):
    """Times are seconds since 1970; None and empty names ask for nothing."""

    sleep_at_s: float | None = None
    wake_at_s: float | None = None
    backup: str = ""
    restore: str = ""
    confirmed_version: str = ""
    rotations: dict[str, str] = {}
    """What is to be rotated, with the token of the request."""
    revoked: dict[str, str] = {}
    """Of what the former key's signatures are to end now, with the token of its rotation."""
    problems: tuple[SpecProblem, ...] = ()


def read(annotations: Mapping[str, str], now_s: float) -> Requests:
    """The requests among the annotations of a VirtualCluster."""
    problems: list[SpecProblem] = []
    rotations = _tokens(annotations, keys.ROTATE_PREFIX, keys.ROTATABLE, problems)
    revoked = _tokens(annotations, keys.REVOKE_PREFIX, keys.REVOCABLE, problems)
    _unknown(annotations, keys.ROTATE_PREFIX, keys.ROTATABLE, "cannot be rotated", problems)
    _unknown(annotations, keys.REVOKE_PREFIX, keys.REVOCABLE, "cannot be revoked", problems)
    return Requests(
        sleep_at_s=_time(annotations, keys.SLEEP_REQUESTED_AT, now_s, problems),
        wake_at_s=_time(annotations, keys.WAKE_REQUESTED_AT, now_s, problems),
        backup=_name(annotations, keys.BACKUP_REQUESTED, MAX_BACKUP_CHARS, problems),
        restore=_name(annotations, keys.RESTORE_REQUESTED, MAX_BACKUP_CHARS, problems),
        confirmed_version=_name(annotations, keys.CONFIRM_UPGRADE, MAX_NAME_CHARS, problems),
        rotations=rotations,
        revoked=revoked,
        problems=tuple(problems),
    )


def time_of(text: str) -> float | None:
    """Seconds since 1970 of an RFC 3339 time; None if it is none, is older, or has no offset."""
    if len(text) > _MAX_TIME_CHARS:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
        return found.timestamp() if found.tzinfo is not None and found.year >= _FIRST_YEAR else None
    except (ValueError, OverflowError):
        return None


def text_of(at_s: float) -> str:
    """A time as Kubernetes writes it."""
    return dt.datetime.fromtimestamp(at_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(
    annotations: Mapping[str, str], key: str, now_s: float, problems: list[SpecProblem]
) -> float | None:
    text = annotations.get(key, "")
    if not text:
        return None
    at_s = time_of(text)
    if at_s is None:
        problems.append(_problem(key, text, "is no time", f"write the time as {text_of(now_s)}"))
    elif at_s > now_s + MAX_AHEAD_S:
        problems.append(
            _problem(
                key, text, "is in the future", "write the time of the request; plan by spec.sleep.schedules"
            )
        )
        return None
    return at_s


def _name(annotations: Mapping[str, str], key: str, longest: int, problems: list[SpecProblem]) -> str:
    text = annotations.get(key, "")
    if not text or (len(text) <= longest and names.is_pod_name(text)):
        return text
    remedy = (
        f"use {longest} characters at most, of a-z, 0-9, `-` and `.`, with a letter or digit at both ends"
    )
    problems.append(_problem(key, text, "cannot be a name", remedy))
    return ""


def _tokens(
    annotations: Mapping[str, str], prefix: str, known: Iterable[str], problems: list[SpecProblem]
) -> dict[str, str]:
    found = {what: _token(annotations, f"{prefix}{what}", problems) for what in known}
    return {what: token for what, token in found.items() if token}


def _token(annotations: Mapping[str, str], key: str, problems: list[SpecProblem]) -> str:
    text = annotations.get(key, "")
    # Most often a time, with its colons.
    if not text or (len(text) <= MAX_TOKEN_CHARS and names.is_uid(text.replace(":", "-").replace("+", "-"))):
        return text
    remedy = f"use {MAX_TOKEN_CHARS} characters at most, such as the time of the request"
    problems.append(_problem(key, text, "cannot be a token", remedy))
    return ""


def _unknown(
    annotations: Mapping[str, str],
    prefix: str,
    known: Collection[str],
    message: str,
    problems: list[SpecProblem],
) -> None:
    asked = {key.removeprefix(prefix) for key in annotations if key.startswith(prefix)}
    remedy = f"use one of {', '.join(known)}"
    unknown = sorted(asked.difference(known))[:_MAX_ROTATIONS]
    problems += [_problem(prefix, what, message, remedy) for what in unknown]


def _problem(key: str, text: str, message: str, remedy: str) -> SpecProblem:
    shown = repr(text[:_MAX_SHOWN_CHARS])
    return SpecProblem(f"metadata.annotations[{key}]", "RequestInvalid", f"{shown} {message}", remedy)
