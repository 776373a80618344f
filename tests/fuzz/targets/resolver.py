# SPDX-License-Identifier: Apache-2.0
"""resolv.conf files of nodes, and pods' DNS settings: limits hold, and what is written reads back equal.

An input is a line of a watch of pods, or else a node's file.
"""

from typing import Any

import msgspec

from daemonkit.kube.object_limits import limits_of
from daemonkit.kube.resources import PODS
from daemonkit.kube.watch import EventDecoder, GarbageError, Put
from dnsconfig.cluster.objects import PodDnsConfig, PodObject, PodSpec
from dnsconfig.resolve import node_resolver
from dnsconfig.resolve.node_resolver import NodeResolver, NodeResolverError
from dnsconfig.resolve.resolv_conf import lines, retained_lines, text_of
from dnsconfig.resolve.resolver import ClusterDns, compute_resolver
from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget

_PODS: EventDecoder[PodObject] = EventDecoder(PodObject, limits=limits_of(PODS))
_CLUSTER = ClusterDns(("10.0.0.10",), "s", "web", "cluster.local", "d")
_NODE = NodeResolver(("1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"), ("a.example", "b.example"), ("ndots:2",))
# The kubelet's (pkg/apis/core/validation, pkg/kubelet/network/dns).
_MAX_SERVERS, _MAX_SEARCHES, _MAX_SEARCH_CHARACTERS = 3, 32, 2048


def check(data: bytes) -> None:
    if data[:1] == b"{":
        event = only(GarbageError, _PODS.line, data)
        if isinstance(event, Put):
            _check_pod(event.value.spec)
        return
    node = only(NodeResolverError, node_resolver.parse, data.decode("utf-8", "surrogateescape"))
    if node is None:
        return
    # One dot at the end of a domain is cut, as the kubelet does.
    if not any(each.endswith(".") for each in node.searches):
        assert node_resolver.parse(_written(node)) == node
    _check_resolver(PodSpec(dns_policy="Default"), node)
    _check_resolver(PodSpec(), node)


def _written(node: NodeResolver) -> str:
    text = "".join(f"nameserver {each}\n" for each in node.servers)
    return f"{text}search {' '.join(node.searches)}\noptions {' '.join(node.options)}\n"


def _check_pod(spec: PodSpec) -> None:
    again: Any = msgspec.json.decode(msgspec.json.encode(spec), type=PodSpec)
    assert again == spec
    _check_resolver(spec, _NODE)


def _check_resolver(spec: PodSpec, node: NodeResolver) -> None:
    found, events = compute_resolver(spec, _CLUSTER, node, ("10.0.0.1",))
    assert len(found.servers) <= _MAX_SERVERS
    assert len(found.searches) <= _MAX_SEARCHES
    assert len(" ".join(each.value for each in found.searches)) <= _MAX_SEARCH_CHARACTERS
    assert len(events) <= 2
    values = [each.value for each in (*found.servers, *found.searches, *found.options)]
    text = text_of(lines(found))
    # The API server bounds what else may be in a value.
    if all(value and value.isprintable() and " " not in value for value in values):
        assert text_of(retained_lines(text)) == text
        assert node_resolver.parse(text).servers == tuple(each.value for each in found.servers)
    assert spec.dns_config is None or isinstance(spec.dns_config, PodDnsConfig)


def _pod(spec: bytes) -> bytes:
    return (
        b'{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"shop",'
        b'"namespace":"a-web",'
        b'"uid":"u","resourceVersion":"5","annotations":{"x":"y"}},"spec":' + spec + b"}}"
    )


TARGET = FuzzTarget(
    check,
    seeds=(
        b"# c\nnameserver 10.0.0.2\nnameserver fe80::1%eth0\nsearch example. corp.example\n"
        b"options ndots:5 rotate\n",
        b"domain x\nsearch .\n\nsearch a\x0bb\xc2\x85c\noptions ndots:1 ndots:2\n; c\nsortlist x",
        _pod(b'{"dnsPolicy":"ClusterFirst","hostNetwork":false}'),
        _pod(
            b'{"dnsPolicy":"None","dnsConfig":{"nameservers":["1.1.1.1","::1"],"searches":["a.b","c"],'
            b'"options":[{"name":"ndots","value":"2"},{"name":"edns0"},{"name":"x","value":null}]}}'
        ),
        _pod(b'{"dnsPolicy":"Default","dnsConfig":{"searches":[' + b",".join([b'"a.example"'] * 32) + b"]}}"),
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}',
        b'{"type":"ERROR","object":{"code":410,"message":"gone"}}',
    ),
    tokens=(
        *(
            b"\n",
            b" ",
            b"\t",
            b"\x1c",
            b"\xc2\xa0",
            b"\xe2\x80\xa8",
            b"\xff",
            b"\xef\xbf\xbd",
            b"nameserver ",
            b"search ",
            b"options ",
            b"#",
            b".",
        ),
        *(
            b'"',
            b"\\n",
            b"\\u0000",
            b"\\ud800",
            b",",
            b":",
            b"null",
            b"[]",
            b"{}",
            b"[[",
            b'"DELETED"',
            b'"dnsConfig":null,',
            b"1e400",
        ),
        *(
            b'"options":[{"name":"a b"}],',
            b'"searches":["."],',
            b'"nameservers":[""],',
            b"a" * 250,
            b"-1",
            b"true",
        ),
    ),
)
