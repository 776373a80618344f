# SPDX-License-Identifier: Apache-2.0
"""The access decision as a total function: every kind of request, caller and lookup result."""

from itertools import product

import pytest

from tenancy.ownership import Owned, OwnerIndex
from tenancy.tenant import Role
from vnagent.core.access import (
    NOT_THERE,
    AnswerHealth,
    Caller,
    Decision,
    Deny,
    Forward,
    NotYetKnown,
    Serve,
    decide,
)
from vnagent.core.requests import (
    ContainerLogs,
    Endpoint,
    Health,
    PageRequest,
    Protocol,
    Refusal,
    Request,
    Stream,
    Upgrade,
)

SHOP = Owned("ten-a", "web", "shop", "a-1", "ten-a-web", "shop", "s-1", frozenset({"app", "setup"}))
BANK = Owned("ten-b", "web", "bank", "b-1", "ten-b-web", "bank", "s-2", frozenset({"app"}))
SYNCED = OwnerIndex([SHOP, BANK])
EMPTY = OwnerIndex([])
UNSYNCED = OwnerIndex.unsynced()

API = Caller("ten-a", Role.APISERVER, "01" * 32)
METRICS = Caller("ten-a", Role.METRICS, "02" * 32)
UNIDENTIFIED = Caller(None, None, "03" * 32)
ROLELESS = Caller("ten-a", None, "04" * 32)

SPDY = Upgrade(Protocol.SPDY, ("v4.channel.k8s.io",), None)
LOGS = ContainerLogs("web", "shop", "app", (), False)
EXEC = Stream(Endpoint.EXEC, "web", "shop", None, "app", (("output", "1"),), SPDY)
ATTACH = EXEC._replace(endpoint=Endpoint.ATTACH)
SILENT = EXEC._replace(options=(("command", "id"), ("output", "false"), ("tty", "1")))
FORWARD = EXEC._replace(endpoint=Endpoint.PORT_FORWARD, container=None)
PODS = PageRequest(Endpoint.PODS, False, False)
STATS = PageRequest(Endpoint.STATS_SUMMARY, False, True)
HEALTH = Health(is_head=False)
DENIED = Refusal(Endpoint.DENIED, 403, "endpoint-denied")
MALFORMED = Refusal(Endpoint.MALFORMED, 400, "malformed-target", must_close=True)
WRONG_METHOD = Refusal(Endpoint.PODS, 405, "method-not-allowed", allow="GET, HEAD")

REFUSALS = {
    DENIED: Deny(403, "endpoint-denied"),
    MALFORMED: Deny(400, "malformed-target", must_close=True),
    WRONG_METHOD: Deny(405, "method-not-allowed", allow="GET, HEAD"),
}
UNREGISTERED = Deny(403, "unregistered-identity", must_close=True)
ROLE = Deny(403, "role-not-allowed")
ROLE_CLOSING = Deny(403, "role-not-allowed", must_close=True)
MISSING = Deny(404, NOT_THERE)
MISSING_CLOSING = Deny(404, NOT_THERE, must_close=True)
UNKNOWN = NotYetKnown("not-synced")

# request -> (apiserver and the pod is its own, ... is not there, ... not synced,
#             metrics client of the same tenant, synced, ... not synced)
TABLE: dict[Request, tuple[Decision, Decision, Decision, Decision, Decision]] = {
    LOGS: (Forward(LOGS, SHOP), MISSING, UNKNOWN, ROLE, ROLE),
    EXEC: (Forward(EXEC, SHOP), MISSING_CLOSING, UNKNOWN, ROLE_CLOSING, ROLE_CLOSING),
    ATTACH: (Forward(ATTACH, SHOP), MISSING_CLOSING, UNKNOWN, ROLE_CLOSING, ROLE_CLOSING),
    SILENT: (
        Deny(400, "no-stream-asked", must_close=True),
        MISSING_CLOSING,
        UNKNOWN,
        ROLE_CLOSING,
        ROLE_CLOSING,
    ),
    FORWARD: (Forward(FORWARD, SHOP), MISSING_CLOSING, UNKNOWN, ROLE_CLOSING, ROLE_CLOSING),
    PODS: (Serve(PODS, "ten-a"), Serve(PODS, "ten-a"), UNKNOWN, Serve(PODS, "ten-a"), UNKNOWN),
    STATS: (Serve(STATS, "ten-a"), Serve(STATS, "ten-a"), UNKNOWN, Serve(STATS, "ten-a"), UNKNOWN),
    HEALTH: (AnswerHealth(HEALTH),) * 5,
    DENIED: (REFUSALS[DENIED],) * 5,
    MALFORMED: (REFUSALS[MALFORMED],) * 5,
    WRONG_METHOD: (REFUSALS[WRONG_METHOD],) * 5,
}


@pytest.mark.parametrize("request_", list(TABLE))
def test_registered_callers(request_: Request) -> None:
    found = (
        decide(request_, API, SYNCED),
        decide(request_, API, EMPTY),
        decide(request_, API, UNSYNCED),
        decide(request_, METRICS, SYNCED),
        decide(request_, METRICS, UNSYNCED),
    )
    assert found == TABLE[request_]


@pytest.mark.parametrize(
    ("request_", "caller", "index"), list(product(TABLE, (UNIDENTIFIED, ROLELESS), (SYNCED, EMPTY, UNSYNCED)))
)
def test_unregistered_callers_get_403(request_: Request, caller: Caller, index: OwnerIndex) -> None:
    assert decide(request_, caller, index) == UNREGISTERED


LOGS_OF_BANK = LOGS._replace(pod="bank")


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        # Another tenant's pod, a missing pod, a missing namespace: the same response.
        (LOGS_OF_BANK, MISSING),
        (LOGS._replace(pod="no-such"), MISSING),
        (LOGS._replace(namespace="no-such"), MISSING),
        # No tenant owns the super cluster's names.
        (LOGS._replace(namespace="ten-a-web"), MISSING),
        (LOGS._replace(namespace="ten-b-web", pod="bank"), MISSING),
        (LOGS._replace(namespace="kube-system", pod="etcd-node-1"), MISSING),
        # Containers: the tenant's own, init ones included, and nothing that was injected.
        (LOGS._replace(container="setup"), Forward(LOGS._replace(container="setup"), SHOP)),
        (LOGS._replace(container="mesh-proxy"), Deny(404, "no-such-container-of-tenant")),
        (EXEC._replace(container="mesh-proxy"), Deny(404, "no-such-container-of-tenant", must_close=True)),
        # The uid: the tenant's own or none; the super pod's is none of its business.
        (EXEC._replace(uid="a-1"), Forward(EXEC._replace(uid="a-1"), SHOP)),
        (EXEC._replace(uid="s-1"), Deny(404, "other-uid", must_close=True)),
        (FORWARD._replace(uid="b-1"), Deny(404, "other-uid", must_close=True)),
    ],
)
def test_an_apiservers_requests(request_: ContainerLogs | Stream, expected: Decision) -> None:
    assert decide(request_, API, SYNCED) == expected


TOO_LARGE = Owned(
    *("ten-a", "web", "huge", "a-2", "ten-a-web", "huge", "s-9"), frozenset(), problem="too large: x has more"
)
HUGE = LOGS._replace(pod="huge")


@pytest.mark.parametrize("request_", [HUGE, HUGE._replace(container="mesh-proxy"), EXEC._replace(pod="huge")])
def test_an_oversized_pod_is_500(request_: ContainerLogs | Stream) -> None:
    """Only its owner is known. A 404 would claim that it is missing."""
    text = (
        "the node agent cannot serve pod web/huge, as its object in the super cluster is too large: x has"
        " more; create the pod again without that, or ask the operator of this node"
    )
    found = decide(request_, API, OwnerIndex([SHOP, TOO_LARGE]))
    assert found == Deny(500, "pod-unreadable", isinstance(request_, Stream), text=text)


def test_an_oversized_pod_is_404_for_others() -> None:
    index = OwnerIndex([BANK, TOO_LARGE])
    other = API._replace(tenant="ten-b")
    assert decide(HUGE, other, index) == decide(HUGE, other, OwnerIndex([BANK])) == MISSING
    # Nor is it the one that was before it under its name.
    before = decide(EXEC._replace(pod="huge", container=None, uid="a-1"), API, index)
    assert before == Deny(404, "other-uid", must_close=True)


def test_names_that_collide_when_joined_stay_apart() -> None:
    """Tenant `a` + namespace `b-c` and tenant `a-b` + namespace `c` join to one super namespace."""
    left = Owned("a", "b-c", "web", "u-1", "a-b-c", "web", "s-1", frozenset({"app"}))
    right = Owned("a-b", "c", "web", "u-2", "a-b-c-0f3c9", "web", "s-2", frozenset({"app"}))
    index = OwnerIndex([left, right])
    logs = {name: LOGS._replace(namespace=name, pod="web") for name in ("b-c", "c")}
    callers = {name: Caller(name, Role.APISERVER, "05" * 32) for name in ("a", "a-b")}
    assert {
        (caller, name): decide(logs[name], callers[caller], index) for caller in callers for name in logs
    } == {
        ("a", "b-c"): Forward(logs["b-c"], left),
        ("a", "c"): MISSING,
        ("a-b", "b-c"): MISSING,
        ("a-b", "c"): Forward(logs["c"], right),
    }


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (LOGS_OF_BANK, NotYetKnown("pods-stale")),
        (LOGS._replace(pod="no-such"), NotYetKnown("pods-stale")),
        (LOGS._replace(namespace="no-such"), NotYetKnown("pods-stale")),
        (LOGS._replace(namespace="kube-system", pod="etcd-node-1"), NotYetKnown("pods-stale")),
        (LOGS._replace(container="mesh-proxy"), NotYetKnown("pods-stale")),
        (EXEC._replace(container="no-such"), NotYetKnown("pods-stale")),
        (EXEC._replace(uid="s-1"), NotYetKnown("pods-stale")),
        (LOGS, Forward(LOGS, SHOP)),
        (EXEC, Forward(EXEC, SHOP)),
        (SILENT, Deny(400, "no-stream-asked", must_close=True)),
        (PODS, Serve(PODS, "ten-a")),
        (HEALTH, AnswerHealth(HEALTH)),
        (DENIED, REFUSALS[DENIED]),
    ],
)
def test_unknown_pods_are_503_while_the_source_is_stale(request_: Request, expected: Decision) -> None:
    """The same response for every pod that the index lacks, another tenant's or missing."""
    assert decide(request_, API, SYNCED, is_stale=True) == expected


def test_a_stale_source_changes_no_other_denial() -> None:
    for caller in (METRICS, UNIDENTIFIED):
        for request_ in (LOGS, LOGS_OF_BANK):
            stale = decide(request_, caller, SYNCED, is_stale=True)
            assert stale == decide(request_, caller, SYNCED)
