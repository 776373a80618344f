# SPDX-License-Identifier: Apache-2.0
"""The audit object of a decision: the caller, the request, its pod, the answer and the reason.

Nothing else of the request is in it: no path, query, header or body, so no command line and no
token. Names have passed the grammar of Kubernetes names before they get here.
"""

import msgspec

from vnagent.core.access import Caller
from vnagent.core.requests import ContainerLogs, Endpoint, Request, Stream

_quoted = msgspec.json.Encoder().encode


def _text(value: str | None) -> str:
    return "null" if value is None else _quoted(value).decode()


def identity_of(caller: Caller) -> str:
    """The two fields of the caller, equal for every line of a connection."""
    return f'"tenant":{_text(caller.tenant)},"identity":{_text(caller.identity)}'


def render(
    time: str, identity: str, request: Request | None, reason: str, status: int, request_id: str
) -> bytes:
    """One line of JSON, line end included. `identity` is from `identity_of`; `request` is None for a
    malformed head.

    `decision` is `allow` where the request was allowed, even if it failed then. The
    line is formatted by hand, as every request has one: time, endpoint, reason and identifier
    are constants of vn-agent, and valid names need no escapes.
    """
    if isinstance(request, (ContainerLogs, Stream)):
        container = "null" if request.container is None else f'"{request.container}"'
        names = f'"namespace":"{request.namespace}","pod":"{request.pod}","container":{container}'
    else:
        names = '"namespace":null,"pod":null,"container":null'
    endpoint = Endpoint.MALFORMED if request is None else request.endpoint
    decision = "allow" if reason in ALLOWED or reason in HOP_FAILURES else "deny"
    return (
        f'{{"time":"{time}",{identity},"endpoint":"{endpoint}",{names},"decision":"{decision}",'
        f'"reason":"{reason}","status":{status},"requestId":"{request_id}"}}\n'
    ).encode()


# Why a request was allowed: the pod is the tenant's; the page is rebuilt for the tenant; vn-agent
# itself answered.
OWNED = "owned"
OWN_VIEW = "own-view"
OWN_ANSWER = "own-answer"
ALLOWED = frozenset({OWNED, OWN_VIEW, OWN_ANSWER})
# The client left before the decision: nothing was allowed.
LEFT_UNDECIDED = "client-left-undecided"
_FAILURES = (
    "unreachable",
    "untrusted",
    "timeout",
    "broke-off",
    "malformed",
    "too-large",
    "refused",
    "failed",
    "rejected",
    "not-found",
    "refused-upgrade",
)
# Why an allowed request failed: by the server upstream, for its page, or as the client left.
HOP_FAILURES = frozenset(
    [f"{hop}-{failure}" for hop in ("kubelet", "apiserver") for failure in _FAILURES]
    + ["page-malformed", "client-left"]
)
