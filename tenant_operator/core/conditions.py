# SPDX-License-Identifier: Apache-2.0
"""The conditions of a VirtualCluster: those of the operator have a type, those of vc-syncer none.

A condition's time changes with its status alone. What others have written stays.
"""

import datetime as dt
import enum
import re
from collections.abc import Iterable, Sequence

import msgspec

from tenant_operator.model.foreign_text import one_line
from tenant_operator.model.virtual_cluster import Condition

# As vc-syncer's; a longer one is cut.
MAX_MESSAGE_CHARS = 1024
_REASON = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?")


class ConditionType(enum.StrEnum):
    """In the order in which they are shown."""

    READY = "Ready"
    CONTROL_PLANE_AVAILABLE = "ControlPlaneAvailable"
    SYNCER_ATTACHED = "SyncerAttached"
    NODES_SERVING = "NodesServing"
    CERTIFICATES_VALID = "CertificatesValid"
    UP_TO_DATE = "UpToDate"
    SLEEPING = "Sleeping"


class ConditionStatus(enum.StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Finding(msgspec.Struct, frozen=True):
    """What a condition is to be: `message` names the object and the remedy."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str = ""

    @property
    def is_true(self) -> bool:
        return self.status is ConditionStatus.TRUE


def holds(type_: ConditionType, reason: str, message: str = "") -> Finding:
    """A condition that is True."""
    return Finding(type_, ConditionStatus.TRUE, reason, message)


def fails(type_: ConditionType, reason: str, message: str) -> Finding:
    """A condition that is False."""
    return Finding(type_, ConditionStatus.FALSE, reason, message)


def unknown(type_: ConditionType, reason: str, message: str) -> Finding:
    """A condition that cannot be decided now."""
    return Finding(type_, ConditionStatus.UNKNOWN, reason, message)


def merged(before: Sequence[Condition], findings: Iterable[Finding], now: float) -> list[Condition]:
    """The conditions with these in the place of those of their types."""
    known = {each.type: each for each in before if each.type}
    found: list[Condition] = []
    own: set[str] = set()
    for each in findings:
        own.add(each.type)
        old = known.get(each.type)
        is_changed = old is None or old.status != each.status
        at = timestamp(now) if old is None or is_changed else old.last_transition_time
        message = one_line(each.message, MAX_MESSAGE_CHARS)
        found.append(Condition(each.type, each.status, _reason(each.reason), message, at))
    return [*found, *(each for each in before if each.type not in own)]


def _reason(text: str) -> str:
    """A reason of the API that answered, which may be a tenant's, as Kubernetes takes them."""
    return text if _REASON.fullmatch(text) else "Refused"


def timestamp(seconds: float) -> str:
    """A time as Kubernetes writes it (RFC 3339, UTC, whole seconds)."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
