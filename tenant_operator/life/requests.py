# SPDX-License-Identifier: Apache-2.0
"""What a person asks by annotations of a VirtualCluster. Pure.

A value that cannot be used asks for nothing, and is refused with its remedy. All of them are looked at, so
that one wrong value hides no other request.

What was refused once stays so until the annotation goes or changes, and the status has it
(`refusedRequests`): neither a time that comes, nor a rotation that begins, nor another vc-operator carries
out months later what no person awaits any more.
"""

import datetime as dt
import hashlib
from collections.abc import Collection, Iterable, Mapping

import msgspec

from tenancy import keys, names
from tenant_operator.model.virtual_cluster import RefusedRequest, VirtualClusterStatus

# The clock of the person's machine may be ahead of ours.
MAX_AHEAD_S = 300.0
MAX_NAME_CHARS = 253
MAX_TOKEN_CHARS = 63
# As a label's value.
MAX_BACKUP_CHARS = 63
_MAX_TIME_CHARS = 40
_FIRST_YEAR = 1971
_MAX_SHOWN_CHARS = 60
_MAX_REFUSED = 16
_DIGEST_CHARS = 16
_PREFIX = "vcnode.io/"
# What else a VirtualCluster may have. Who gives data up leaves the UID of the lost namespace there.
_OTHERS = (keys.SYNC_WEIGHT, keys.SYNC_POLICY, keys.RELEASE_HELD, keys.HOLD_DELETIONS, keys.GIVE_UP_DATA)
_REQUESTS = (
    keys.SLEEP_REQUESTED_AT,
    keys.WAKE_REQUESTED_AT,
    keys.BACKUP_REQUESTED,
    keys.RESTORE_REQUESTED,
    keys.CONFIRM_UPGRADE,
)


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
    refused: tuple[RefusedRequest, ...] = ()
    """For the status."""


def read(
    annotations: Mapping[str, str],
    now_s: float,
    status: VirtualClusterStatus | None = None,
    *,
    is_imported: bool = False,
) -> Requests:
    """The requests among the annotations of a VirtualCluster with this status. Of one that `is_imported` all
    are refused: its control plane is its maker's."""
    status = VirtualClusterStatus() if status is None else status
    refused = {
        each.annotation: each
        for each in status.refused_requests
        if each.annotation in annotations and each.digest == _digest(annotations[each.annotation])
    }
    left = {key: text for key, text in annotations.items() if key not in refused}
    if is_imported:
        for key in sorted(key for key in left if _is_request(key)):
            message = "is of no control plane that others made"
            _refuse(refused, key, left.pop(key), message, "remove the annotation, and use their means")
    rotations = _tokens(left, keys.ROTATE_PREFIX, keys.ROTATABLE, refused)
    revoked = _tokens(left, keys.REVOKE_PREFIX, keys.REVOCABLE, refused)
    for what, token in tuple(revoked.items()):
        begun = {each.token for each in status.rotations if each.what == what}
        if token not in begun | {rotations.get(what)}:
            remedy = "remove the annotation; once status.rotations has a rotation, use the token of that"
            message = f"is the token of no rotation of {what}"
            _refuse(refused, f"{keys.REVOKE_PREFIX}{what}", token, message, remedy)
            del revoked[what]
    _unknown(left, refused)
    return Requests(
        sleep_at_s=_time(left, keys.SLEEP_REQUESTED_AT, now_s, refused),
        wake_at_s=_time(left, keys.WAKE_REQUESTED_AT, now_s, refused),
        backup=_name(left, keys.BACKUP_REQUESTED, MAX_BACKUP_CHARS, refused),
        restore=_name(left, keys.RESTORE_REQUESTED, MAX_BACKUP_CHARS, refused),
        confirmed_version=_confirmed(left, status, refused),
        rotations=rotations,
        revoked=revoked,
        refused=tuple(each for _, each in sorted(refused.items())[:_MAX_REFUSED]),
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


def _is_request(key: str) -> bool:
    return key in _REQUESTS or key.startswith((keys.ROTATE_PREFIX, keys.REVOKE_PREFIX))


def _time(
    annotations: Mapping[str, str], key: str, now_s: float, refused: dict[str, RefusedRequest]
) -> float | None:
    text = annotations.get(key, "")
    if not text:
        return None
    at_s = time_of(text)
    if at_s is None:
        _refuse(refused, key, text, "is no time", f"write the time as {text_of(now_s)}")
    elif at_s > now_s + MAX_AHEAD_S:
        remedy = "write the time of the request; plan by spec.sleep.schedules"
        _refuse(refused, key, text, "is in the future", remedy)
        return None
    return at_s


def _name(annotations: Mapping[str, str], key: str, longest: int, refused: dict[str, RefusedRequest]) -> str:
    text = annotations.get(key, "")
    if not text or (len(text) <= longest and names.is_pod_name(text)):
        return text
    remedy = (
        f"use {longest} characters at most, of a-z, 0-9, `-` and `.`, with a letter or digit at both ends"
    )
    _refuse(refused, key, text, "cannot be a name", remedy)
    return ""


def _confirmed(
    annotations: Mapping[str, str], status: VirtualClusterStatus, refused: dict[str, RefusedRequest]
) -> str:
    found = _name(annotations, keys.CONFIRM_UPGRADE, MAX_NAME_CHARS, refused)
    to = "" if status.upgrade is None else status.upgrade.to
    if not found or found == to:
        return found
    last = f"the last one is to {to}" if to else "there was none"
    remedy = "remove the annotation, and confirm an upgrade once status.upgrade has it"
    _refuse(refused, keys.CONFIRM_UPGRADE, found, f"is not what an upgrade leads to: {last}", remedy)
    return ""


def _tokens(
    annotations: Mapping[str, str], prefix: str, known: Iterable[str], refused: dict[str, RefusedRequest]
) -> dict[str, str]:
    found = {what: _token(annotations, f"{prefix}{what}", refused) for what in known}
    return {what: token for what, token in found.items() if token}


def _token(annotations: Mapping[str, str], key: str, refused: dict[str, RefusedRequest]) -> str:
    text = annotations.get(key, "")
    # Most often a time, with its colons.
    if not text or (len(text) <= MAX_TOKEN_CHARS and names.is_uid(text.replace(":", "-").replace("+", "-"))):
        return text
    remedy = f"use {MAX_TOKEN_CHARS} characters at most, such as the time of the request"
    _refuse(refused, key, text, "cannot be a token", remedy)
    return ""


def _unknown(annotations: Mapping[str, str], refused: dict[str, RefusedRequest]) -> None:
    """Annotations of ours that this version does not know: of another version, or misspelt."""
    known = {*_OTHERS, *_REQUESTS}
    known |= {f"{keys.ROTATE_PREFIX}{what}" for what in keys.ROTATABLE}
    known |= {f"{keys.REVOKE_PREFIX}{what}" for what in keys.REVOCABLE}
    unknown = sorted(key for key in annotations if key.startswith(_PREFIX) and key not in known)
    for key in unknown[:_MAX_REFUSED]:
        message, remedy = "asks for nothing that vc-operator knows", _remedy_unknown(key)
        _refuse(refused, key, annotations[key], message, remedy)


def _remedy_unknown(key: str) -> str:
    of: dict[str, Collection[str]] = {
        keys.ROTATE_PREFIX: keys.ROTATABLE,
        keys.REVOKE_PREFIX: keys.REVOCABLE,
    }
    for prefix, known in of.items():
        if key.startswith(prefix):
            return f"remove the annotation; behind {prefix} it can be {', '.join(known)}"
    return f"remove the annotation; it can be {', '.join(_REQUESTS)}"


def _refuse(refused: dict[str, RefusedRequest], key: str, text: str, message: str, remedy: str) -> None:
    shown = repr(text[:_MAX_SHOWN_CHARS])
    sentence = f"metadata.annotations[{key}]: {shown} {message}; {remedy}"
    refused[key] = RefusedRequest(key, _digest(text), sentence)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]
