# SPDX-License-Identifier: Apache-2.0
"""The cases of isolation on a real apiserver, with the webhook as it is shipped.

Whatever of them a real apiserver takes is there at once, each case with tenants of its own; pods are
dry runs. Addresses of Services are the apiserver's to give, so those of the cases stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from dnsconfig.cluster.objects import PodObject
from dnsconfig.resolve.decision import decide, node_dns_of
from dnsconfig.resolve.resolver import DnsClass
from tests.cases.dns.load import FORBIDDEN_PREFIX, HOST, DnsCase, load
from tests.cluster_states import cluster_state_of, decode_object
from tests.k8s.ring import gate_networks, webhook
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.processes import RingError, wait_for

_TIMEOUT_S = 30.0
_CASES = load()
_POSSIBLE = [case for case in _CASES if case.is_possible]
# Of these the apiserver itself refuses the pod: no such value can be a label's.
_REFUSED = [case for case in _CASES if not case.is_possible and case.id.startswith("label-")]


@dataclass(frozen=True, slots=True)
class AllocatedAddresses:
    """The ClusterIPs of the cases' Services in the super cluster, by case and placeholder."""

    api: KubernetesApi
    given: Mapping[tuple[str, str], str]

    def servers(self, case: DnsCase) -> tuple[str, ...]:
        return tuple(self.given.get((case.id, each), each) for each in case.servers)

    @property
    def forbidden(self) -> frozenset[str]:
        return frozenset(real for (_, name), real in self.given.items() if name.startswith(FORBIDDEN_PREFIX))


@pytest.fixture(scope="module")
def allocated(ring: Ring) -> Iterator[AllocatedAddresses]:
    """All objects of all cases, and the webhook beside them."""
    gate_networks.install(ring.super_cluster.api)
    api = ring.super_cluster.api
    given: dict[tuple[str, str], str] = {}
    made: list[str] = []
    with webhook.installed(ring) as address:
        daemon = webhook.daemon(ring, address)
        try:
            for case in _POSSIBLE:
                for item in sorted(case.items(_prefix(case)), key=lambda each: each["kind"] != "Namespace"):
                    _create(api, case, item, given, made)
            daemon.start()
            yield AllocatedAddresses(api, given)
        finally:
            daemon.stop()
            for path in made:
                api.delete(path)


@pytest.mark.parametrize("case", _POSSIBLE, ids=lambda case: case.id)
def test_no_tenant_becomes_anothers_resolver(allocated: AllocatedAddresses, case: DnsCase) -> None:
    wait_for(case.id, lambda: _is_as_expected(allocated, case), timeout_s=_TIMEOUT_S)


@pytest.mark.parametrize("case", _REFUSED, ids=lambda case: case.id)
def test_apiserver_refuses_invalid_network_labels(allocated: AllocatedAddresses, case: DnsCase) -> None:
    pods = "/api/v1/namespaces/default/pods?dryRun=All"
    with pytest.raises(RingError, match=r": (400|413|422) "):
        allocated.api.create(pods, _pod(case))


def _is_as_expected(allocated: AllocatedAddresses, case: DnsCase) -> bool:
    """One dry run. An unsynced object may cause a refusal, never a wrong server."""
    pod = _pod(case)
    expected = _decided(case)
    try:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods?dryRun=All"
        spec = allocated.api.create(path, pod)["spec"]
    except RingError as error:
        # The message quotes names, and JSON quotes the message.
        message = str(error).replace("\\", "")
        assert "no DNS for this pod" in message or "failed calling webhook" in message
        return expected is not None and f"no DNS for this pod: {expected}" in message
    found = tuple(spec.get("dnsConfig", {}).get("nameservers", ()))
    assert not allocated.forbidden & set(found)
    assert case.waits is None, f"admitted with {found}"
    if _is_for_us(case):
        assert (spec["dnsPolicy"], found) == ("None", allocated.servers(case))
    else:
        requested = pod["spec"]
        assert spec["dnsPolicy"] == requested.get("dnsPolicy", "ClusterFirst")
        assert spec.get("dnsConfig") == requested.get("dnsConfig")
    return True


def _decided(case: DnsCase) -> str | None:
    """The resolver's message, where the pod waits."""
    pod = decode_object(case.pod(_prefix(case)))
    assert isinstance(pod, PodObject)
    found = decide(pod, cluster_state_of(case.items(_prefix(case))), node_dns_of(HOST))
    return None if found is None or found.waiting is None else found.waiting.message.replace("\\", "")


def _is_for_us(case: DnsCase) -> bool:
    pod = decode_object(case.pod(_prefix(case)))
    assert isinstance(pod, PodObject)
    found = decide(pod, cluster_state_of(case.items(_prefix(case))), node_dns_of(HOST))
    return found is not None and found.dns_class is DnsClass.CLUSTER


def _prefix(case: DnsCase) -> str:
    return f"d{_CASES.index(case):03}"


def _pod(case: DnsCase) -> JsonObject:
    value = case.pod(_prefix(case))
    del value["metadata"]["uid"]
    value["metadata"]["name"] = value["metadata"]["name"][:60]
    value["spec"]["containers"] = [{"name": "main", "image": "missing/image:1"}]
    return value


def _create(
    api: KubernetesApi, case: DnsCase, item: JsonObject, given: dict[tuple[str, str], str], made: list[str]
) -> None:
    """Create one object, with its status; record its path and its allocated address."""
    meta = item["metadata"]
    value = {key: item[key] for key in ("apiVersion", "kind", "metadata")}
    if item["kind"] == "Namespace":
        api.create("/api/v1/namespaces", value, may_exist=True)
        return
    if item["kind"] == "Network":
        path = f"/apis/{item['apiVersion']}/namespaces/{meta['namespace']}/networks"
        api.create(path, {**value, "spec": item["spec"]}, may_exist=True)
        api.patch(f"{path}/{meta['name']}/status", {"status": item["status"]})
    else:
        path = f"/api/v1/namespaces/{meta['namespace']}/services"
        spec: JsonObject = {"ports": [{"port": 53, "protocol": "UDP"}]}
        cluster_ip = item["spec"].get("clusterIP", "")
        if "externalName" in item["spec"]:
            spec |= {key: item["spec"][key] for key in ("type", "externalName")}
        elif cluster_ip == "None":
            spec["clusterIP"] = cluster_ip
        api.create(path, {**value, "spec": spec}, may_exist=True)
        real = api.get(f"{path}/{meta['name']}")["spec"].get("clusterIP", "")
        if cluster_ip and real not in ("", "None"):
            given[case.id, cluster_ip] = real
    made.append(f"{path}/{meta['name']}")
