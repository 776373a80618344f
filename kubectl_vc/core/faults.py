# SPDX-License-Identifier: Apache-2.0
"""Why a request by kubectl failed, and what to do. Only this module reads kubectl's error texts."""

import enum
import re
from typing import NamedTuple

_MAX_CHARACTERS = 2000
# kubectl's cmdutil.StandardErrorMessage: `Error from server (REASON): MESSAGE`.
_FROM_SERVER = re.compile(r"Error from server(?: \((\w+)\))?: (.*)", re.DOTALL)
# The API server's warnings, and log lines of client-go (klog: a letter, month and day).
_ASIDE = re.compile(r"Warning: |[EFIW]\d{4} ")


class FaultReason(enum.StrEnum):
    """By whose fault, in the API server's words where it has one."""

    NOT_FOUND = "NotFound"
    FORBIDDEN = "Forbidden"
    UNAUTHORIZED = "Unauthorized"
    ALREADY_EXISTS = "AlreadyExists"
    CONFLICT = "Conflict"
    INVALID = "Invalid"
    NO_RESOURCE = "NoResource"
    NO_CONTEXT = "NoContext"
    NO_KUBECTL = "NoKubectl"
    UNREACHABLE = "Unreachable"
    OTHER = "Failed"


_REMEDIES = {
    FaultReason.NOT_FOUND: "list what there is with `kubectl vc get -A`",
    FaultReason.FORBIDDEN: "ask an administrator of that cluster for this right, or use another --context",
    FaultReason.UNAUTHORIZED: "renew your credentials of the super cluster",
    FaultReason.ALREADY_EXISTS: "choose another name, or look at it with `kubectl vc get`",
    FaultReason.CONFLICT: "another client changed it at the same time: try again",
    FaultReason.INVALID: "correct what the message names",
    FaultReason.NO_RESOURCE: "this cluster has no VirtualClusters: choose the super cluster with --context,"
    " or apply packaging/crds there",
    FaultReason.NO_CONTEXT: "choose the super cluster with --context and --kubeconfig;"
    " `kubectl config get-contexts` lists them",
    FaultReason.NO_KUBECTL: "install kubectl, and put it into PATH",
    FaultReason.UNREACHABLE: "check the API server's address, the network and any proxy; then try again",
    FaultReason.OTHER: "see kubectl's message",
}
_BY_SERVERS_REASON = {
    **{each.value: each for each in FaultReason},
    "ServiceUnavailable": FaultReason.UNREACHABLE,
    "Timeout": FaultReason.UNREACHABLE,
    "ServerTimeout": FaultReason.UNREACHABLE,
    "TooManyRequests": FaultReason.UNREACHABLE,
}
# Parts of messages that kubectl writes by itself, without a server's answer.
_OWN_MESSAGES = (
    # The object that was read is gone, and another has its name.
    ("metadata.uid: invalid value", FaultReason.CONFLICT),
    (" is invalid: ", FaultReason.INVALID),
    ("doesn't have a resource type", FaultReason.NO_RESOURCE),
    ("no matches for kind", FaultReason.NO_RESOURCE),
    ("the server could not find the requested resource", FaultReason.NO_RESOURCE),
    ("must be logged in to the server", FaultReason.UNAUTHORIZED),
    ("does not exist", FaultReason.NO_CONTEXT),
    ("error in configuration", FaultReason.NO_CONTEXT),
    # kubectl's default where there is no configuration.
    ("the connection to the server localhost:8080", FaultReason.NO_CONTEXT),
    ("no configuration has been provided", FaultReason.NO_CONTEXT),
    ("current-context is not set", FaultReason.NO_CONTEXT),
    ("error loading config file", FaultReason.NO_CONTEXT),
    ("no such file or directory", FaultReason.NO_CONTEXT),
    ("unable to connect to the server", FaultReason.UNREACHABLE),
    ("the connection to the server", FaultReason.UNREACHABLE),
    ("timeout", FaultReason.UNREACHABLE),
)


class RequestFault(NamedTuple):
    """One failed request."""

    reason: FaultReason
    message: str


class RequestError(Exception):
    """A request failed; the edge raises it."""

    def __init__(self, fault: RequestFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class PluginError(Exception):
    """Why a verb failed, whole: object, hop and remedy."""


def fault_of(printed: str) -> RequestFault:
    """What kubectl's stderr says."""
    lines = [line for line in printed.splitlines() if not _ASIDE.match(line)]
    message = " ".join(" ".join(lines).split())[-_MAX_CHARACTERS:]
    found = _FROM_SERVER.search(message)
    if found and found[1]:
        return RequestFault(_BY_SERVERS_REASON.get(found[1], FaultReason.OTHER), found[2])
    lowered = message.lower()
    for part, reason in _OWN_MESSAGES:
        if part in lowered:
            return RequestFault(reason, message)
    return RequestFault(
        FaultReason.OTHER, found[2] if found else message or "kubectl failed without a message"
    )


def sentence(action: str, fault: RequestFault, hop: str = "the super cluster") -> str:
    """`cannot ACTION: HOP: REASON: MESSAGE; REMEDY`."""
    return f"cannot {action}: {hop}: {fault.reason.value}: {fault.message}; {_REMEDIES[fault.reason]}"
