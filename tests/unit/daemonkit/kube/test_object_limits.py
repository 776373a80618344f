# SPDX-License-Identifier: Apache-2.0
from typing import Any

import msgspec
import pytest

from daemonkit.kube import deep_json
from daemonkit.kube.object_limits import FREE_BYTES, MAX_OBJECT_BYTES, limits_of
from daemonkit.kube.resources import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    NAMESPACES,
    PODS,
    SERVICES,
    VIRTUAL_CLUSTERS,
    Resource,
)

NETWORKS = Resource("arktos.futurewei.com", "v1", "networks")
_PADDING = {"managedFields": [{"manager": "x" * FREE_BYTES}]}


def excess(resource: Resource, **fields: Any) -> str | None:
    """Of an object that is looked at, as it is not small."""
    metadata = {"name": "a", **_PADDING, **fields.pop("metadata", {})}
    return limits_of(resource).excess(msgspec.json.encode({"metadata": metadata, **fields}))


def endpoint(number: int, addresses: int = 1) -> dict[str, Any]:
    return {
        "addresses": [f"10.{number >> 8}.{number & 255}.{each}" for each in range(addresses)],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "hints": {"forZones": [{"name": "zone-a"}]},
        "nodeName": "n" * 253,
        "targetRef": {"kind": "Pod", "name": "p" * 253, "namespace": "n" * 63, "uid": "u" * 36},
        "zone": "zone-a",
    }


@pytest.mark.parametrize(
    ("resource", "fields", "reason"),
    [
        (CONFIG_MAPS, {"data": {"text": "x" * MAX_OBJECT_BYTES}}, f"it has more than {5 << 20} bytes"),
        (
            NAMESPACES,
            {"metadata": {"labels": {f"l{number}": "" for number in range(1_001)}}},
            "metadata.labels has more than 1000 entries",
        ),
        (
            CONFIG_MAPS,
            {"metadata": {"annotations": {f"a{number}": "" for number in range(4_097)}}},
            "metadata.annotations has more than 4096 entries",
        ),
        (
            SERVICES,
            {"spec": {"externalIPs": [f"10.0.{n >> 8}.{n & 255}" for n in range(1_001)]}},
            "spec.externalIPs has more than 1000 entries",
        ),
        (
            SERVICES,
            {"spec": {"externalIPs": [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(100_000)]}},
            "spec.externalIPs has more than 65536 bytes",
        ),
        (SERVICES, {"spec": {"ports": [{"port": 1}] * 20_001}}, "spec.ports has more than 20000 entries"),
        (
            SERVICES,
            {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}] * 1_001}}},
            "status.loadBalancer.ingress has more than 1000 entries",
        ),
        (ENDPOINT_SLICES, {"endpoints": [{}] * 1_001}, "endpoints has more than 1000 entries"),
        (ENDPOINT_SLICES, {"ports": [{"port": 1}] * 20_001}, "ports has more than 20000 entries"),
        (
            PODS,
            {"spec": {"dnsConfig": {"options": [{"name": "a"}] * 257}}},
            "spec.dnsConfig.options has more than 256 entries",
        ),
        (
            PODS,
            {"spec": {"dnsConfig": {"options": [{"name": "a" * (64 << 10)}]}}},
            "spec.dnsConfig.options has more than 65536 bytes",
        ),
        (NETWORKS, {"status": {"message": "x" * 300_000}}, "status.message has more than 196608 bytes"),
        (
            VIRTUAL_CLUSTERS,
            {"spec": {"clusterDomain": "x" * 5_000}},
            "spec.clusterDomain has more than 4096 bytes",
        ),
    ],
)
def test_objects_beyond_a_limit_are_too_large(
    resource: Resource, fields: dict[str, Any], reason: str
) -> None:
    assert excess(resource, **fields) == f"too large: {reason}"


@pytest.mark.parametrize(
    ("resource", "fields"),
    [
        (ENDPOINT_SLICES, {"endpoints": [endpoint(number) for number in range(1_000)]}),
        (ENDPOINT_SLICES, {"endpoints": [endpoint(number, 100) for number in range(1_000)]}),
        (SERVICES, {"spec": {"ports": [{"name": f"rtp-{port}", "port": port} for port in range(20_000)]}}),
        (SERVICES, {"metadata": {"annotations": {"text": '<"' * (128 << 10)}}}),
        (SERVICES, {"spec": {"loadBalancerSourceRanges": [f"2001:db8:{n:x}::/48" for n in range(5_000)]}}),
        (PODS, {"spec": {"dnsConfig": {"searches": ["s" * 64] * 32, "nameservers": ["192.0.2.1"] * 3}}}),
        (PODS, {"spec": {"containers": [{"name": f"c{n}", "args": ["x" * 5_000]} for n in range(200)]}}),
        (PODS, {"spec": None, "status": {"conditions": None}}),
        # A malformed object is not too large: the decoder reports the fault and its path.
        (SERVICES, {"spec": {"externalIPs": "192.0.2.1", "ports": {}}, "status": [1]}),
        (CONFIG_MAPS, {"data": {"text": "x" * (1 << 20)}}),
    ],
)
def test_objects_that_kubernetes_allows_are_not_too_large(resource: Resource, fields: dict[str, Any]) -> None:
    assert excess(resource, **fields) is None


def test_small_objects_are_not_measured() -> None:
    raw = msgspec.json.encode({"spec": {"externalIPs": ["::1"] * 1_001}})
    assert len(raw) < FREE_BYTES
    assert limits_of(SERVICES).excess(raw) is None


def test_pods_have_a_bound_of_dns_options() -> None:
    options = [{"name": "a"}] * 257
    raw = msgspec.json.encode({"spec": {"dnsConfig": {"options": options}}})
    assert limits_of(PODS).excess(raw) == "too large: spec.dnsConfig.options has more than 256 entries"


@pytest.mark.parametrize(
    "spec",
    [
        b'{"dnsConfig":{"nameservers":["::1","::2","::3","::4"]}}',
        b'{"\\u0064nsConfig":{"nameservers":["::1","::2","::3","::4"]}}',
    ],
)
def test_what_few_pods_have_is_measured_in_each(spec: bytes) -> None:
    """Of most pods their bytes and commas say enough. A name may be written with escapes."""
    raw = b'{"metadata":{"annotations":{"text":"%s"}},"spec":%s}' % (b"x" * (4 << 10), spec)
    assert limits_of(PODS).excess(raw) == "too large: spec.dnsConfig.nameservers has more than 3 entries"


def test_a_usual_pod_is_not_decoded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    containers = [{"name": f"c{number}", "args": ["x" * 100]} for number in range(100)]
    raw = msgspec.json.encode({"spec": {"containers": containers}})
    limits = limits_of(PODS)
    monkeypatch.setattr(deep_json, "decode", None)
    assert limits.excess(raw) is None


def test_a_small_object_may_have_many_entries() -> None:
    raw = msgspec.json.encode({"status": {"conditions": [{}] * 501}, "spec": {"nodeName": "n" * 3_000}})
    assert limits_of(PODS).excess(raw) == "too large: status.conditions has more than 500 entries"


def test_malformed_json_is_left_to_the_decoder() -> None:
    assert limits_of(PODS).excess(b"{" + b" " * FREE_BYTES) is None
    assert limits_of(PODS).excess(b'{"metadata":' + b"[" * (FREE_BYTES * 2)) is None
