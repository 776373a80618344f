# SPDX-License-Identifier: Apache-2.0
"""No byte of one tenant reaches another, against a model of ownership.

Random tenants, names, pods, requests and orders of events go through all deciding and rendering code.
Names have few parts joined by hyphens, so that they often collide when joined
(tenant `a` + namespace `b-c`, tenant `a-b` + namespace `c`). `tests/functional/vnagent/test_isolation.py`
does the same with the real daemon.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devkit.kubelet.default_replies import default_reply
from devkit.kubelet.pods import FakePod, page_for, pod_list
from devkit.kubelet.replies import Exchange, Tunnel, parse_head
from tenancy import keys, names
from tenancy.ownership import ContainerPolicy, OwnerIndex
from tenancy.tenant import Role
from tests.rebuilt_pages import tenants_page
from vnagent.core.access import AnswerHealth, Caller, Deny, Forward, NotYetKnown, Serve, decide
from vnagent.core.head import parse_request_head
from vnagent.core.kubelet_request import PAGE_PATHS, KubeletRequests, page_path
from vnagent.core.requests import ContainerLogs, Endpoint, Refusal, Request, Stream, parse
from vnagent.pages.kinds import PAGE_KINDS
from vnagent.pages.page import PageKind
from vnagent.pages.podlist import owned_pods
from vnagent.pages.stats import SUMMARY_ONLY_CPU_AND_MEMORY

PAGES: dict[str, PageKind[Any]] = {
    **{PAGE_PATHS[endpoint]: page for endpoint, page in PAGE_KINDS.items()},
    "/stats/summary?only_cpu_and_memory=true": SUMMARY_ONLY_CPU_AND_MEMORY,
}
INJECTED = "mesh"
POLICY = ContainerPolicy(injected=frozenset({INJECTED}))
HOST = "127.0.0.1:10250"
REQUESTS = KubeletRequests(HOST)
SPDY = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"

_PARTS = ["a", "b", "c"]
# "a", "a-b", "b-c", "a-b-c", ...: every join of two of them is also a join of two others.
NAMES = ["-".join(_PARTS[i:j]) for i in range(3) for j in range(i + 1, 4)] + ["a--b", "c-a"]
TENANTS = [*NAMES, "a" * 60]
_NAME = st.sampled_from(NAMES)
_TENANT = st.sampled_from(TENANTS)


@dataclass(frozen=True, slots=True)
class TenantPod:
    """A pod by the tenant's names."""

    tenant: str
    namespace: str
    name: str


@dataclass
class Model:
    """The kubelet's pods and their owners. A name of the super cluster has one pod at a time, as at a real
    kubelet; a later pod replaces it."""

    running: dict[tuple[str, str], tuple[FakePod, TenantPod | None]] = field(default_factory=dict)
    count: int = 0
    index: OwnerIndex = field(default_factory=OwnerIndex.unsynced)
    is_synced: bool = False

    def run(self, tenant_pod: TenantPod, super_namespace: str | None = None) -> None:
        """Start a tenant's pod under the name that the syncer would give it, or another one."""
        joined = super_namespace or names.super_namespace(tenant_pod.tenant, tenant_pod.namespace)
        assert isinstance(joined, str)
        annotations = {
            keys.CLUSTER: tenant_pod.tenant,
            keys.NAMESPACE: tenant_pod.namespace,
            keys.UID: f"tenant-uid-{self.count}x",
        }
        self._put(FakePod(joined, tenant_pod.name, self._uid(), annotations=annotations), tenant_pod)

    def run_host(self, namespace: str, name: str) -> None:
        self._put(FakePod(namespace, name, self._uid()), None)

    def _uid(self) -> str:
        self.count += 1
        return f"super-uid-{self.count}x"

    def _put(self, pod: FakePod, tenant_pod: TenantPod | None) -> None:
        # One tenant pod has one body: the syncer deletes the old one first.
        gone = [
            key for key, (_, other) in self.running.items() if tenant_pod is not None and other == tenant_pod
        ]
        for key in gone:
            del self.running[key]
        self.running[pod.namespace, pod.name] = replace(pod, injected=(INJECTED,)), tenant_pod

    def delete(self, number: int) -> None:
        if self.running:
            del self.running[sorted(self.running)[number % len(self.running)]]

    def publish(self) -> None:
        """Sync the agent's index with the kubelet's list."""
        page = json.dumps(pod_list(self.pods)).encode()
        found, problems = owned_pods(page, POLICY)
        assert problems == ()
        self.index = OwnerIndex(found)
        self.is_synced = True

    def forget(self) -> None:
        """The agent restarts, and its index is not synced."""
        self.index = OwnerIndex.unsynced()
        self.is_synced = False

    @property
    def pods(self) -> list[FakePod]:
        return [pod for pod, _ in self.running.values()]

    def of(self, tenant_pod: TenantPod) -> FakePod | None:
        return next((pod for pod, other in self.running.values() if other == tenant_pod), None)

    def owned_by(self, tenant: str) -> list[FakePod]:
        return [pod for pod, other in self.running.values() if other is not None and other.tenant == tenant]


# ---- events and requests

_EVENTS = st.one_of(
    st.tuples(st.just("run"), _TENANT, _NAME, _NAME),
    st.tuples(st.just("run elsewhere"), _TENANT, _NAME, _NAME),
    st.tuples(st.just("host"), st.sampled_from(["kube-system", "a-b", "a-b-c"]), _NAME, st.none()),
    st.tuples(st.just("delete"), st.integers(0, 20), st.none(), st.none()),
    st.tuples(st.just("forget"), st.none(), st.none(), st.none()),
)
_KINDS = ["containerLogs", "exec", "attach", "portForward"]


@st.composite
def _requests(draw: st.DrawFn) -> tuple[str, str, str, str, str, str | None]:
    """Caller, kind, namespace, pod, container, uid: tenants' names, super names, half of each."""
    caller, other, namespace = draw(_TENANT), draw(_TENANT), draw(_NAME)
    joined = f"{other}-{namespace}"[:63].rstrip("-")
    return (
        caller,
        draw(st.sampled_from(_KINDS)),
        draw(st.sampled_from([namespace, joined, "kube-system"])),
        draw(_NAME),
        draw(st.sampled_from(["app", "app", INJECTED, "no-such"])),
        draw(st.sampled_from([None, None, "own", "super-uid-1x", "tenant-uid-0x"])),
    )


def request_of(kind: str, namespace: str, name: str, container: str, uid: str | None) -> Request:
    """The request as bytes, parsed: decisions are on requests that a client can send."""
    path = f"/{kind}/{namespace}/{name}"
    if uid is not None and kind != "containerLogs":
        path += f"/{uid}"
    if kind != "portForward":
        path += f"/{container}"
    if kind in {"exec", "attach"}:
        path += "?output=1"
    method, extra = ("GET", "") if kind == "containerLogs" else ("POST", SPDY)
    if kind == "portForward":
        extra = extra.replace("v4.channel.k8s.io", "portforward.k8s.io")
    head = f"{method} {path} HTTP/1.1\r\nHost: a\r\n{extra}".removesuffix("\r\n")
    return parse(parse_request_head(head.encode()))


def kubelet_reply(model: Model, sent: bytes) -> tuple[int, bytes]:
    """The kubelet's reply to these bytes: status, and all its bytes."""
    exchange = Exchange(0, sent)
    parse_head(sent, exchange)
    assert not exchange.is_malformed
    reply = default_reply(exchange, model.pods, {}, "node-1")
    greeting = f"{exchange.path.split('/')[2:4]}".encode() if reply.tunnel is Tunnel.ECHO else b""
    return reply.status, reply.body + reply.first_bytes + greeting


_MARKER = re.compile(rb"(?:super|tenant)-uid-[0-9]+x")


def markers(data: bytes) -> set[str]:
    return {found.decode() for found in _MARKER.findall(data)}


def check(model: Model, request_fields: tuple[str, str, str, str, str, str | None]) -> None:
    caller, kind, namespace, name, container, uid = request_fields
    mine = model.of(TenantPod(caller, namespace, name))
    if uid == "own":
        uid = mine.annotations[keys.UID] if mine is not None else "none"
    request = request_of(kind, namespace, name, container, uid)
    decision = decide(request, Caller(caller, Role.APISERVER, "00"), model.index)
    if isinstance(request, Refusal):
        assert isinstance(decision, Deny)
        return
    assert isinstance(request, ContainerLogs | Stream)
    if not model.is_synced:
        assert decision == NotYetKnown("not-synced")
        return
    is_allowed = (
        mine is not None
        and (kind == "portForward" or container == "app")
        and (kind == "containerLogs" or uid in {None, mine.annotations[keys.UID]})
    )
    assert isinstance(decision, Forward) == is_allowed
    if not isinstance(decision, Forward):
        assert isinstance(decision, Deny)
        assert decision.status == 404
        return
    assert mine is not None
    if isinstance(request, ContainerLogs):
        sent = REQUESTS.logs(request, decision.pod)
    else:
        sent = REQUESTS.stream(request, decision.pod)
    status, reply_bytes = kubelet_reply(model, sent)
    assert status == (200 if kind == "containerLogs" else 101)
    # All markers in it are of this one pod, and it has one.
    assert markers(reply_bytes) <= {mine.uid}
    if kind != "portForward":
        assert mine.marker.encode() in reply_bytes


def check_pages(model: Model, tenant: str) -> None:
    """Each page of a tenant has its own pods, and nothing of another tenant or the super cluster."""
    caller = Caller(tenant, Role.METRICS, "00")
    for path, page in PAGES.items():
        request = parse(parse_request_head(f"GET {path} HTTP/1.1\r\nHost: a".encode()))
        decision = decide(request, caller, model.index)
        if not model.is_synced:
            assert decision == NotYetKnown("not-synced")
            continue
        assert isinstance(decision, Serve)
        assert decision.tenant == tenant
        source = page_for(page_path(decision.page).partition("?")[0], model.pods, "node-1")
        assert source is not None
        body = tenants_page(page, source[1], model.index, tenant)
        own = {pod.annotations[keys.UID] for pod in model.owned_by(tenant)}
        assert markers(body) <= own
        assert INJECTED.encode() not in body
        if path in {"/pods", "/runningpods/", "/stats/summary"}:
            assert markers(body) == own


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(_EVENTS, st.lists(_requests(), max_size=6)), min_size=1, max_size=12),
    _TENANT,
)
def test_isolation_holds_for_any_order_of_events(
    steps: Sequence[tuple[tuple[object, ...], Sequence[tuple[str, str, str, str, str, str | None]]]],
    reader: str,
) -> None:
    model = Model()
    for (what, first, second, third), request_fields in steps:
        match what, first, second, third:
            case "run", str(tenant), str(namespace), str(name):
                model.run(TenantPod(tenant, namespace, name))
            case "run elsewhere", str(tenant), str(namespace), str(name):
                # A syncer with another rule for names, or the hashed form of a long one.
                model.run(TenantPod(tenant, namespace, name), f"x{model.count}")
            case "host", str(namespace), str(name), None:
                model.run_host(namespace, name)
            case "delete", int(number), None, None:
                model.delete(number)
        if what == "forget":
            model.forget()
        else:
            model.publish()
        for each in request_fields:
            check(model, each)
        # And every tenant for every pod, by its owner's names and by the super cluster's.
        for pod, tenant_pod in list(model.running.values()):
            for caller in {reader, *([tenant_pod.tenant] if tenant_pod is not None else [])}:
                called_namespace = tenant_pod.namespace if tenant_pod is not None else pod.namespace
                check(model, (caller, "containerLogs", called_namespace, pod.name, "app", None))
                check(model, (caller, "exec", pod.namespace, pod.name, "app", None))
        check_pages(model, reader)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_TENANT, _NAME, _NAME), max_size=8, unique=True))
def test_decisions_do_not_depend_on_the_form_of_super_names(tenant_pods: list[tuple[str, str, str]]) -> None:
    """The same pods under opaque names of the super cluster give the same decisions but for those names. So
    no decision splits, joins or compares prefixes of names."""
    first, second = Model(), Model()
    for number, (tenant, namespace, name) in enumerate(tenant_pods):
        joined = names.super_namespace(tenant, namespace)
        taken = (joined, name) in first.running
        first.run(TenantPod(tenant, namespace, name), f"taken-{number}" if taken else None)
        second.run(TenantPod(tenant, namespace, name), f"{'zyxwvuts'[number]}{number}")
    first.publish()
    second.publish()
    opaque = {pod.uid: pod.namespace for pod in second.pods}
    namespaces = {namespace for _, namespace, _ in tenant_pods} | {pod.namespace for pod in first.pods}
    request_fields = product(
        sorted({tenant for tenant, _, _ in tenant_pods}), sorted(namespaces), NAMES, _KINDS
    )
    for caller, namespace, name, kind in request_fields:
        request = request_of(kind, namespace, name, "app", None)
        ours = decide(request, Caller(caller, Role.APISERVER, "00"), first.index)
        theirs = decide(request, Caller(caller, Role.APISERVER, "00"), second.index)
        if isinstance(ours, Forward):
            moved = replace(ours.pod, super_namespace=opaque[ours.pod.super_uid])
            ours = ours._replace(pod=moved)
        assert ours == theirs


@pytest.mark.parametrize("is_synced", [True, False])
def test_health_is_served_without_a_synced_index(is_synced: bool) -> None:
    index = OwnerIndex([], is_synced=is_synced)
    caller = Caller("a", Role.APISERVER, "00")
    health = parse(parse_request_head(b"GET /healthz HTTP/1.1\r\nHost: a"))
    denied = parse(parse_request_head(b"GET /logs/ HTTP/1.1\r\nHost: a"))
    assert isinstance(decide(health, caller, index), AnswerHealth)
    assert decide(denied, caller, index) == Deny(403, "endpoint-denied")
    assert denied.endpoint is Endpoint.DENIED
