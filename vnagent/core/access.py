# SPDX-License-Identifier: Apache-2.0
"""Access control: one total function from (request, caller, index) to a decision.

Every request names an endpoint and most name a pod; a request without a row here is denied.
A denial carries the reason for the audit line. The client reads less: a foreign pod, a
missing pod, a container that is not the tenant's and a wrong UID get the same bytes.
"""

from typing import NamedTuple, assert_never

from tenancy.ownership import NotOwned, Owned, OwnerIndex
from tenancy.tenant import Role
from vnagent.core.requests import ContainerLogs, Health, PageRequest, Refusal, Request, Stream


class Caller(NamedTuple):
    """The identity that the client's certificate or token proved; `tenant` is None for an unregistered one.

    `identity` is the SHA-256 of the certificate's public key in hex, or `token:` and that of the token's
    issuer and subject.
    """

    tenant: str | None
    role: Role | None
    identity: str


class Forward(NamedTuple):
    """Relay to the kubelet under the super cluster's names of `pod`."""

    request: ContainerLogs | Stream
    pod: Owned


class Serve(NamedTuple):
    """Answer with the page rebuilt for the tenant."""

    page: PageRequest
    tenant: str


class AnswerHealth(NamedTuple):
    request: Health


class Deny(NamedTuple):
    """`must_close`: the connection ends with this answer. `text` replaces the standard sentence."""

    status: int
    reason: str
    must_close: bool = False
    allow: str | None = None
    text: str | None = None


class NotYetKnown(NamedTuple):
    """The index cannot decide: answer 503, or read the source again and decide then."""

    reason: str


Decision = Forward | Serve | AnswerHealth | Deny | NotYetKnown

NOT_THERE = "no-such-pod-of-tenant"


def decide(request: Request, caller: Caller, index: OwnerIndex, *, is_stale: bool = False) -> Decision:
    """Decide on one request. Total over the closed set of requests.

    `is_stale`: the source of pods cannot be read now, so that a pod may exist which the index lacks. Then a
    foreign pod, a missing pod, a container and a UID all get 503.
    """
    if caller.tenant is None or caller.role is None:
        return Deny(403, "unregistered-identity", must_close=True)
    match request:
        case ContainerLogs() | Stream():
            must_close = isinstance(request, Stream)
            if caller.role is not Role.APISERVER:
                return Deny(403, "role-not-allowed", must_close)
            decision = _decide_pod(request, caller.tenant, index, must_close)
            if is_stale and isinstance(decision, Deny) and decision.status == 404:
                return NotYetKnown("pods-stale")
            return decision
        case PageRequest():
            if not index.is_synced:
                return NotYetKnown("not-synced")
            return Serve(request, caller.tenant)
        case Health():
            return AnswerHealth(request)
        case Refusal():
            return Deny(request.status, request.reason, request.must_close, request.allow)
        case _:
            assert_never(request)


def _decide_pod(
    request: ContainerLogs | Stream, tenant: str, index: OwnerIndex, must_close: bool
) -> Decision:
    pod = index.lookup(tenant, request.namespace, request.pod)
    if pod is NotOwned.UNKNOWN:
        return NotYetKnown("not-synced")
    if pod is NotOwned.FOREIGN:
        return Deny(404, NOT_THERE, must_close)
    if pod.problem and request.uid in (None, pod.uid):
        # Its containers are unknown. For 500 alone, a tenant's apiserver passes the text of a log's refusal
        # on and does not blame the request.
        return Deny(500, "pod-unreadable", must_close, text=_unreadable(pod))
    if request.container is not None and request.container not in pod.containers:
        return Deny(404, "no-such-container-of-tenant", must_close)
    # The tenant's own UID or nothing: tenants do not know the super pod's UID.
    if request.uid is not None and request.uid != pod.uid:
        return Deny(404, "other-uid", must_close)
    if isinstance(request, Stream) and not request.has_streams:
        # The kubelet would answer the same, for the price of a connection.
        return Deny(400, "no-stream-asked", must_close)
    return Forward(request, pod)


def _unreadable(pod: Owned) -> str:
    """`problem` names fields and numbers of Kubernetes, never a value of the pod."""
    return (
        f"the node agent cannot serve pod {pod.namespace}/{pod.name}, as its object in the super cluster is"
        f" {pod.problem}; create the pod again without that, or ask the operator of this node"
    )
