# SPDX-License-Identifier: Apache-2.0
"""Why a pod's containers wait: (reason, message), as in a container's state `waiting`."""

import enum
from dataclasses import dataclass


class WaitReason(enum.Enum):
    """Values of a metric's label and of `/explain`."""

    NOT_SYNCED = "NotSynced"  # unknown is not no: the API server has not been listed since our start
    OWNER_UNKNOWN = "OwnerUnknown"
    INVALID_NETWORK_NAME = "InvalidNetworkName"
    NOT_FOUND = "NotFound"
    NETWORK_NOT_READY = "NetworkNotReady"
    NO_SERVER_ADDRESS = "NoServerAddress"
    FOREIGN_OBJECT = "ForeignObject"  # the right name, but of another tenant or another network
    UNREADABLE = "Unreadable"
    CLUSTER_DOMAIN_UNKNOWN = "ClusterDomainUnknown"
    NODE_RESOLVER_INVALID = "NodeResolverInvalid"
    TOO_LARGE = "TooLarge"
    INVALID_OPTION = "InvalidOption"
    READINESS_ANNOTATION = "ReadinessAnnotation"


@dataclass(frozen=True, slots=True)
class PodWaiting:
    """`message` is for the pod's author: it has the tenant's own names only."""

    reason: WaitReason
    message: str
