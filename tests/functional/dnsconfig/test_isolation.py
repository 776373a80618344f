# SPDX-License-Identifier: Apache-2.0
"""The isolation cases against the daemon as a process, all in one super cluster.

tests/unit has the decisions. Here the objects come by lists and watches, and the resolvers go to a fake
kata-bridge. Tenants of different cases have keys of their own. A pod that is too large to be decoded
gets no resolver, and an Event.
"""

import json
from pathlib import Path

import pytest

from daemonkit.kube.event_recorder import EVENTS
from daemonkit.kube.object_limits import limits_of
from daemonkit.kube.resources import PODS
from devkit.kube.storage import Selection
from dnsconfig.cluster.objects import PodObject
from dnsconfig.resolve.decision import decide, node_dns_of
from tests.cases.dns.load import FORBIDDEN_PREFIX, HOST, DnsCase, load
from tests.cluster_states import cluster_state_of, decode_object
from tests.functional.daemon_node import NAME, running
from tests.functional.dnsconfig.node import DnsNode

pytestmark = pytest.mark.asyncio

# The fake API server has one scope for each kind: it takes no Network without a namespace.
CASES = [case for case in load() if case.id != "network-that-is-cluster-scoped"]


def prefix(number: int) -> str:
    return f"c{number:03}"


def reason(case: DnsCase, key: str) -> str:
    """The pod's wait message; empty if it does not wait."""
    pod = decode_object(case.pod(key))
    assert isinstance(pod, PodObject)
    found = decide(pod, cluster_state_of(case.items(key)), node_dns_of(HOST))
    return "" if found is None or found.waiting is None else found.waiting.message


def uids_of_events(here: DnsNode, reason: str) -> set[str]:
    """The UIDs of the objects that Events of this reason are about."""
    posted = here.apiserver.storage.select(Selection(EVENTS))
    return {each["involvedObject"]["uid"] for each in posted if each["reason"] == reason}


async def test_no_tenant_becomes_anothers_resolver(tmp_path: Path) -> None:
    here = DnsNode(tmp_path)
    here.resolv_conf.write_text(HOST)
    pods: list[tuple[DnsCase, str, str]] = []
    too_large: set[str] = set()
    for number, case in enumerate(CASES):
        key = prefix(number)
        here.put(*case.items(key))
        pod = case.pod(key)
        pod["spec"]["nodeName"] = NAME
        uid = here.apiserver.storage.put(PODS, pod)["metadata"]["uid"]
        if limits_of(PODS).excess(json.dumps(pod).encode()) is None:
            pods.append((case, uid, reason(case, key)))
        else:
            too_large.add(uid)
    submitted = [(case, uid, wait_message) for case, uid, wait_message in pods if not case.is_nothing]
    assert too_large

    async with running(here):
        await here.until(
            lambda: (
                all(here.servers(uid) == list(case.servers) for case, uid, _ in submitted)
                and all(here.waits(uid) == wait_message for _, uid, wait_message in submitted)
            )
        )
        await here.until(here.is_ready)
        await here.until(lambda: too_large <= uids_of_events(here, "ObjectTooLarge"))
        for case, uid, wait_message in pods:
            assert FORBIDDEN_PREFIX not in here.text(uid), case.id
            assert (here.servers(uid), here.waits(uid)) == (list(case.servers), wait_message), case.id
        # Pods of no tenant were never submitted, and no pod had a wrong address at any time.
        nobodys = {uid for case, uid, _ in pods if case.is_nothing}
        assert nobodys
        assert not (nobodys | too_large) & {each.pod_uid for each in here.bridge.resolv_conf_requests}
        assert not any(FORBIDDEN_PREFIX in each.text for each in here.bridge.resolv_conf_requests)
        assert await here.stop() == 0
