# SPDX-License-Identifier: Apache-2.0
"""Why a pod has no resolver yet, or may not start yet: in words for its author, and by kind."""

import enum
from dataclasses import dataclass


class Cause(enum.Enum):
    """The kinds of reasons; values of a metric's label."""

    UNHEARD = "unheard"  # the API server has not told of it since our start: unknown is not no
    OWNER = "owner"  # whose pod it is cannot be told for sure
    NAME = "name"  # the label names what can be no network
    MISSING = "missing"
    NOT_READY = "notReady"
    NO_ADDRESS = "noAddress"
    FOREIGN = "foreign"  # what has the right name is another's, or of another network
    UNREADABLE = "unreadable"
    DOMAIN = "clusterDomain"
    NODE = "nodeResolver"
    TOO_LARGE = "tooLarge"
    UNUSABLE = "unusable"  # what its dnsConfig says can stand in no resolv.conf
    HELD = "readiness"  # the pod's own annotation


@dataclass(frozen=True, slots=True)
class Waits:
    """The reason uses the tenant's names alone: its pod's author reads it."""

    cause: Cause
    reason: str
