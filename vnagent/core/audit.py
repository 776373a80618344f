# SPDX-License-Identifier: Apache-2.0
"""The audit object of a decision: who asked for what of which pod, what was said, and why.

Nothing else of the request is in it: no path, query, header or body, so no command line and no
token. Names have passed the grammar of Kubernetes names before they get here.
"""

import msgspec

from vnagent.core.access import Caller
from vnagent.core.requests import ContainerLogs, Endpoint, Request, Stream


class Record(msgspec.Struct, rename="camel"):
    time: str
    tenant: str | None
    identity: str
    endpoint: Endpoint
    namespace: str | None
    pod: str | None
    container: str | None
    decision: str
    reason: str
    status: int
    request_id: str


_encode = msgspec.json.Encoder().encode


def render(
    time: str, caller: Caller, request: Request | None, reason: str, status: int, request_id: str
) -> bytes:
    """One line of JSON, line end included. `request` is None for a head that could not be read.

    `decision` is `allow` where the tenant may have what it asked for, whatever came of it then.
    """
    namespace = pod = container = None
    endpoint = Endpoint.MALFORMED if request is None else request.endpoint
    if isinstance(request, (ContainerLogs, Stream)):
        namespace, pod, container = request.namespace, request.pod, request.container
    is_allowed = reason in ALLOWED or reason in HOP_FAILURES
    return (
        _encode(
            Record(
                time,
                caller.tenant,
                caller.spki,
                endpoint,
                namespace,
                pod,
                container,
                "allow" if is_allowed else "deny",
                reason,
                status,
                request_id,
            )
        )
        + b"\n"
    )


# Why something was allowed: the pod is the tenant's; the page is rebuilt from the tenant's view; the
# answer is ours.
OWNED = "owned"
OWN_VIEW = "own-view"
OWN_ANSWER = "own-answer"
ALLOWED = frozenset({OWNED, OWN_VIEW, OWN_ANSWER})
# Reasons why an allowed request did not get its answer.
HOP_FAILURES = frozenset(
    {
        "kubelet-unreachable",
        "kubelet-untrusted",
        "kubelet-timeout",
        "kubelet-broke-off",
        "kubelet-malformed",
        "kubelet-refused",
        "kubelet-failed",
        "kubelet-rejected",
        "kubelet-not-found",
        "kubelet-refused-upgrade",
        "page-malformed",
        "client-left",
    }
)
