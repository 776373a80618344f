# SPDX-License-Identifier: Apache-2.0
"""Services, EndpointSlices and Namespaces of a watch: decoded twice they are equal, packed mean the same."""

from typing import Any

import msgspec

from daemonkit.kube.object_limits import limits_of
from daemonkit.kube.resources import NAMESPACES
from daemonkit.kube.watch import EventDecoder, GarbageError, LineSplitter, Put
from kubeproxy_ext.cache import transform
from kubeproxy_ext.compute.objects import (
    ENDPOINT_SLICES,
    SERVICES,
    EndpointSliceObject,
    NamespaceObject,
    ServiceObject,
)
from kubeproxy_ext.compute.packed_slices import endpoints_of, has_endpoints, pack
from kubeproxy_ext.compute.parse import parse_namespace, parse_service, parse_slice
from tests.fuzz.invariants import only, same_however_divided
from tests.fuzz.target import FuzzTarget

_KINDS: tuple[tuple[EventDecoder[Any], type], ...] = (
    (EventDecoder(ServiceObject, limits=limits_of(SERVICES)), ServiceObject),
    (EventDecoder(EndpointSliceObject, limits=limits_of(ENDPOINT_SLICES)), EndpointSliceObject),
    (EventDecoder(NamespaceObject, limits=limits_of(NAMESPACES)), NamespaceObject),
)
_MAX_PROBLEMS, _MAX_PROBLEM_CHARACTERS = 9, 400


def check(data: bytes) -> None:
    for line in same_however_divided(data, _lines) or ():
        for decoder, kind in _KINDS:
            event = only(GarbageError, decoder.line, line)
            if isinstance(event, Put):
                _check_object(event.value, kind)


def _lines(pieces: list[bytes]) -> list[bytes] | None:
    splitter = LineSplitter(max_line_bytes=2048)
    try:
        return [line for piece in pieces for line in splitter.feed(piece)]
    except GarbageError:
        return None


def _check_object(value: Any, kind: type) -> None:
    written = msgspec.json.encode(value)
    assert msgspec.json.decode(written, type=kind) == value
    if isinstance(value, ServiceObject):
        found = parse_service(value)
        assert found == parse_service(transform.service(value))
        if found is not None:
            _check_problems(found.problems)
    elif isinstance(value, EndpointSliceObject):
        _check_slice(value)
    else:
        assert parse_namespace(value) == parse_namespace(transform.namespace(value))


def _check_slice(value: EndpointSliceObject) -> None:
    packed = pack(value)
    assert pack(packed) == packed
    assert has_endpoints(packed) == has_endpoints(value)
    assert len(endpoints_of(packed)) == len(endpoints_of(value))
    found = parse_slice(value)
    assert parse_slice(packed) == found
    assert parse_slice(transform.endpoint_slice(value)) == found
    if found is not None:
        _check_problems(found.problems)


def _check_problems(problems: tuple[str, ...]) -> None:
    assert len(problems) <= _MAX_PROBLEMS
    assert all(len(each) <= _MAX_PROBLEM_CHARACTERS for each in problems)


def _event(kind: bytes, rest: bytes, labels: bytes = b"{}") -> bytes:
    return (
        b'{"type":"ADDED","object":{"kind":"' + kind + b'","metadata":{"name":"s","namespace":"a","uid":"u",'
        b'"resourceVersion":"5","creationTimestamp":"2026-01-02T03:04:05Z","labels":'
        + labels
        + b"}"
        + rest
        + b"}}\n"
    )


_SERVICE = _event(
    b"Service",
    b',"spec":{"type":"LoadBalancer","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1","fd00::1"],'
    b'"ipFamilies":["IPv4",'
    b'"IPv6"],"externalIPs":["1.2.3.4"],"loadBalancerSourceRanges":["10.0.0.0/8"," ::/0 '
    b'"],"ports":[{"name":"http",'
    b'"port":80,"protocol":"TCP"},{"port":53,"protocol":"UDP"}],"sessionAffinity":"ClientIP",'
    b'"sessionAffinityConfig":'
    b'{"clientIP":{"timeoutSeconds":10}}},"status":{"loadBalancer":{"ingress":[{"ip":"5.6.7.8",'
    b'"ipMode":"VIP"}]}}',
)
_SLICE = _event(
    b"EndpointSlice",
    b',"addressType":"IPv4","ports":[{"name":"http","port":8080,"protocol":"TCP"}],'
    b'"endpoints":[{"addresses":["10.0.0.5"],'
    b'"conditions":{"ready":true,"serving":null,"terminating":false},"nodeName":"n",'
    b'"hints":{"forZones":[{"name":"z"}],'
    b'"forNodes":null}},{"addresses":["10.0.0.6"],"hints":{}}]',
    b'{"kubernetes.io/service-name":"s"}',
)
TARGET = FuzzTarget(
    check,
    seeds=(
        _SERVICE,
        _SLICE,
        _event(b"Namespace", b""),
        _SERVICE
        + b'{"type":"DELETED","object":{"metadata":{"name":"s","namespace":"a","resourceVersion":"6"}}}\n\n'
        + _SLICE,
    ),
    tokens=(
        *(
            b"\n",
            b'"',
            b",",
            b":",
            b"{",
            b"}",
            b"[",
            b"]",
            b"null",
            b"true",
            b"-1",
            b"1.5",
            b"65536",
            b"1e3",
            b'""',
            b"\\u0000",
            b"\xff",
        ),
        *(
            b'"None"',
            b'"::ffff:1.2.3.4"',
            b'"010.0.0.1"',
            b'"10.0.0.1/33"',
            b'"fe80::1%x"',
            b'"IPv6"',
            b'"FQDN"',
            b'"SCTP"',
        ),
        *(
            b'"spec":null,',
            b'"endpoints":null,',
            b'"name":"",',
            b'"service.kubernetes.io/headless":""',
            b"9" * 25,
            b"a" * 64,
        ),
    ),
)
