# SPDX-License-Identifier: Apache-2.0
"""Isolation as a property of the real daemon.

Tenants' names collide when joined, pods come, go and change tenants, tenants are removed and restored. Each
tenant gets its own pods' markers only. `tests/unit/vnagent/test_isolation.py` has many more examples.
"""

import contextlib
import itertools
import json
import re
import ssl
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from devkit.kubelet.pods import MACHINE_ID, FakePod
from devkit.pki import Leaf
from tenancy import keys, names
from tests.cases.client import CaseClient, SendFailed
from tests.cases.replies import ReceivedReply, parse_reply
from tests.functional.vnagent.node import DEADLINE_S, SPDY, AgentNode, head, received, reply_of
from tests.waiting import wait_until
from vnagent.core.kubelet_request import PAGE_PATHS

TENANTS = ("a", "a-b", "a-b-c")
NAMESPACES = ("b", "c", "b-c", "c-b")
PODS = ("web", "web-b")
HOST_POD = FakePod("kube-system", "etcd-node-1", "s-host-0x")
# Of tenant uids and super uids; the x at the end prevents one from being a prefix of another.
_MARKER = re.compile(rb"[st]-(?:a|a-b|a-b-c|host)-[a-z0-9-]*x\b")


def pod(tenant: str, namespace: str, name: str, number: int) -> FakePod:
    super_namespace = names.super_namespace(tenant, namespace)
    assert isinstance(super_namespace, str)
    tag = f"{tenant}-{namespace}-{name}-{number}x"
    annotations = {keys.CLUSTER: tenant, keys.NAMESPACE: namespace, keys.UID: f"t-{tag}"}
    return FakePod(super_namespace, name, f"s-{tag}", annotations=annotations, injected=("mesh",))


def pod_key_of(each: FakePod) -> tuple[str, str, str] | None:
    if keys.CLUSTER not in each.annotations:
        return None
    return each.annotations[keys.CLUSTER], each.annotations[keys.NAMESPACE], each.name


def markers(data: bytes) -> set[str]:
    return {found.decode() for found in _MARKER.findall(data)}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentNode]:
    # Tenants share the kubelet's pages here, as by default. Each response must have one tenant's part only.
    settings = {"injectedContainers": ["mesh"]}
    with AgentNode(tmp_path_factory.mktemp("node") / "n", TENANTS, [HOST_POD], settings) as running:
        yield running


_POD_KEYS = st.tuples(st.sampled_from(TENANTS), st.sampled_from(NAMESPACES), st.sampled_from(PODS))
_STEPS = st.lists(
    st.tuples(
        st.lists(_POD_KEYS, max_size=6, unique=True),  # running pods; a later one takes a super name over
        st.sampled_from([None, None, None, *TENANTS]),  # tenants that are not registered meanwhile
    ),
    min_size=2,
    max_size=4,
)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # to shrink by restarting pods takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(_STEPS)
def test_no_byte_of_one_tenant_reaches_another(
    node: AgentNode, steps: Sequence[tuple[Sequence[tuple[str, str, str]], str | None]]
) -> None:
    # One connection of each tenant stays open throughout. Its caches must not outlive events.
    with contextlib.ExitStack() as stack:
        kept: dict[str, CaseClient] = {}
        _play(node, steps, kept, stack)


def _play(
    node: AgentNode,
    steps: Sequence[tuple[Sequence[tuple[str, str, str]], str | None]],
    kept: dict[str, CaseClient],
    stack: contextlib.ExitStack,
) -> None:
    for number, (pod_keys, absent) in enumerate(steps):
        running: dict[tuple[str, str], FakePod] = {}
        for pod_key in pod_keys:
            new = pod(*pod_key, number)
            running[new.namespace, new.name] = new
        node.set_pods(HOST_POD, *running.values())
        with unregistered(node, absent):
            for tenant in TENANTS:
                if tenant == absent:
                    assert_nothing(node, tenant)
                    kept.pop(tenant, None)  # it was cut
                    continue
                if tenant not in kept:
                    kept[tenant] = stack.enter_context(node.client(tenant))
                assert_its_own(node, tenant, tuple(running.values()), kept[tenant])


@contextlib.contextmanager
def unregistered(node: AgentNode, tenant: str | None) -> Iterator[None]:
    if tenant is None:
        yield
        return
    node.daemon.after_reload((node.tenants_directory / f"{tenant}.yaml").unlink)
    try:
        yield
    finally:
        node.daemon.after_reload(lambda: node.write_tenant(tenant))


def assert_nothing(node: AgentNode, tenant: str) -> None:
    """A client of an unregistered authority gets no reply."""
    for path in ("/pods", "/healthz", "/containerLogs/b/web/app"):
        with contextlib.suppress(OSError, SendFailed, ssl.SSLError), node.client(tenant) as client:
            client.send(head(f"GET {path}"))
            client.receive_until_end(DEADLINE_S)
            assert client.received == b""


def assert_its_own(node: AgentNode, tenant: str, running: Sequence[FakePod], client: CaseClient) -> None:
    mine = {pod_key[1:]: each for each in running if (pod_key := pod_key_of(each)) and pod_key[0] == tenant}
    super_names = {(each.namespace, each.name) for each in (*running, HOST_POD)}
    requested = {(namespace, name) for namespace in NAMESPACES for name in PODS} | super_names
    missing: set[tuple[int, bytes]] = set()
    for namespace, name in sorted(requested):
        found = mine.get((namespace, name))
        if found is None:
            # Once: each waits for the kubelet's list.
            reply = _get(client, f"GET /containerLogs/{namespace}/{name}/app")
            assert markers(reply.body) == set()
            missing.add((reply.status, reply.body))
            continue
        for query in ("", "?tailLines=1"):  # the second time it is known
            reply = _get(client, f"GET /containerLogs/{namespace}/{name}/app{query}")
            assert (reply.status, markers(reply.body)) == (200, {found.uid})
        for container in ("mesh", "no-such"):
            reply = _get(client, f"GET /containerLogs/{namespace}/{name}/{container}")
            missing.add((reply.status, reply.body))
    for path in PAGE_PATHS.values():
        wait_until(partial(_ask_for_own_page, client, path, tuple(mine.values())), within_s=DEADLINE_S)
    # Foreign, the host's, injected and missing: the same bytes.
    assert len(missing) == 1
    assert next(iter(missing))[0] == 404
    for (namespace, name), found in mine.items():
        with node.client(tenant) as streaming:
            streaming.send(head(f"POST /exec/{namespace}/{name}/app?command=ls&output=1", *SPDY))
            assert received(streaming, found.marker.encode())
            assert markers(bytes(streaming.received)) == {found.uid}
    for namespace, name in sorted(super_names - set(mine))[:3]:
        refused = node.ask(tenant, f"POST /exec/{namespace}/{name}/app?command=ls&output=1", *SPDY)
        assert refused is not None
        assert refused.status == 404
        assert markers(refused.body) == set()


def _ask_for_own_page(client: CaseClient, path: str, mine: Sequence[FakePod]) -> bool:
    """Get a page, which must have pods of the tenant only. Whether it has all of them.

    The kubelet's page may be some seconds old, and is shared among tenants.
    """
    own = {each.annotations[keys.UID] for each in mine}
    reply = _get(client, f"GET {path}")
    assert reply.status == 200
    assert markers(reply.body) <= own
    assert MACHINE_ID.encode() not in reply.body
    assert b"mesh" not in reply.body
    has_uids = path in {"/pods", "/runningpods/", "/stats/summary"}
    return markers(reply.body) == own or not has_uids


def _get(client: CaseClient, line: str) -> ReceivedReply:
    """One of several requests on a connection."""
    client.received.clear()
    client.send(head(line))
    reply = reply_of(client)
    assert reply is not None
    assert len(client.received) == reply.length_bytes
    return reply


def test_the_audit_log_names_the_caller_only(node: AgentNode) -> None:
    """A tenant's line has its request in the tenant's names, and its identity."""
    audit = node.directory / "audit.jsonl"
    node.set_pods(HOST_POD, pod("a-b", "c", "web", 900))
    before = len(audit.read_bytes())
    reply = node.logs("a", "b-c", "web")  # the super namespace of both is a-b-c
    assert reply is not None
    assert reply.status == 404
    wait_until(lambda: audit.read_bytes()[before:].endswith(b"\n"), within_s=DEADLINE_S)
    (line,) = audit.read_bytes()[before:].splitlines()
    found = json.loads(line)
    leaf: Leaf = node.tenants["a"].leaf
    assert {key: found[key] for key in found if key not in {"time", "requestId"}} == {
        "tenant": "a",
        "identity": leaf.spki_sha256,
        "endpoint": "containerLogs",
        "namespace": "b-c",
        "pod": "web",
        "container": "app",
        "decision": "deny",
        "reason": "no-such-pod-of-tenant",
        "status": 404,
    }


def test_kubelet_connections_carry_no_rest_of_a_response(node: AgentNode) -> None:
    """Two tenants in turn on the same pooled connections, with responses of many sizes."""
    one, two = pod("a", "b", "web", 901), pod("a-b", "b", "web", 901)
    node.set_pods(one, two)
    for size in (0, 1, 100, 9000, 70_000):
        for each in (one, two):
            line = f"{each.uid} " * (size // 10)
            node.kubelet.append_log(each.namespace, each.name, "app", line)
        with node.client("a") as first, node.client("a-b") as second:
            for _ in range(5):
                for client, each in ((first, one), (second, two)):
                    client.received.clear()
                    client.send(head("GET /containerLogs/b/web/app"))
                    reply = reply_of(client)
                    assert reply is not None
                    assert markers(reply.body) == {each.uid}
                    assert parse_reply(bytes(client.received), "GET") == reply
                    assert len(client.received) == reply.length_bytes


def test_request_identifiers_reveal_nothing_of_others(node: AgentNode) -> None:
    """A count would leak it: two requests would show how many others came in between."""
    found = []
    with node.client(TENANTS[0]) as client:
        for _ in range(300):
            (value,) = _get(client, "GET /healthz").values("X-Request-Id")
            found.append(int(value, 16))
    assert len(set(found)) == 300
    steps = [abs(after - before) for before, after in itertools.pairwise(found)]
    assert sum(step > 1 << 48 for step in steps) > 280
