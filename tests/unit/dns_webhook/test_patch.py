# SPDX-License-Identifier: Apache-2.0
"""A resolv.conf as a pod's spec: the kubelet writes the same text from it."""

from dns_webhook.patch import patch, spec_fields
from dnsconfig.cluster.objects import PodDnsConfig, PodDnsOption, PodSpec
from dnsconfig.resolve import node_resolver
from dnsconfig.resolve.resolv_conf import lines, text_of
from dnsconfig.resolve.resolver import compute_resolver


def test_the_kubelet_writes_the_same_text_from_the_fields() -> None:
    settings = PodDnsConfig(
        ["10.0.0.1", "10.0.0.2"], ["a.example", "."], [PodDnsOption("ndots", "3"), PodDnsOption("debug")]
    )
    found = lines(
        compute_resolver(
            PodSpec(dns_policy="None", dns_config=settings), None, node_resolver.NO_NODE_RESOLVER
        )[0]
    )
    assert spec_fields(found) == {
        "dnsPolicy": "None",
        "dnsConfig": {
            "searches": ["a.example", "."],
            "nameservers": ["10.0.0.1", "10.0.0.2"],
            "options": [{"name": "ndots", "value": "3"}, {"name": "debug"}],
        },
    }
    assert text_of(found) == (
        "search a.example .\nnameserver 10.0.0.1\nnameserver 10.0.0.2\noptions ndots:3 debug\n"
    )


def test_patch_replaces_both_fields() -> None:
    assert patch(()) == [
        {"op": "add", "path": "/spec/dnsPolicy", "value": "None"},
        {"op": "add", "path": "/spec/dnsConfig", "value": {}},
    ]
