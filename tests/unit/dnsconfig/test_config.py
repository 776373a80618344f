# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from daemonkit.config.binding import ConfigError, parse
from daemonkit.config.status_config import StatusConfig
from dnsconfig.config import (
    KIND,
    BridgeConfig,
    DnsConfigConfiguration,
    LastKnownPolicy,
    SuperCluster,
    TenantDomain,
)

LEAST = """
apiVersion: vcnode.io/v1alpha1
kind: DnsConfigConfiguration
nodeName: node-1
superCluster: {kubeconfigFile: kubeconfig}
"""
ALL = """
bridge: {socket: bridge.sock}
clusterDomain: k8s.example
tenants:
- {key: a, clusterDomain: a.example}
resolvConf: /run/systemd/resolve/resolv.conf
nodeIPs: [10.0.0.1, "fd00::1"]
lastKnown: wait
stateDirectory: state
events: false
plainKubeDns: false
status: {socket: status.sock}
"""


def read(text: str) -> DnsConfigConfiguration:
    return parse(text.encode(), DnsConfigConfiguration, kind=KIND, source="x", directory=Path("/etc"))


def test_minimal_configuration_has_defaults() -> None:
    assert read(LEAST) == DnsConfigConfiguration("node-1", SuperCluster(Path("/etc/kubeconfig")))


def test_every_key_is_read() -> None:
    text = LEAST.replace("kubeconfig}", "kubeconfig, hasVirtualClusters: false}") + ALL
    assert read(text) == DnsConfigConfiguration(
        "node-1",
        SuperCluster(Path("/etc/kubeconfig"), has_virtual_clusters=False),
        BridgeConfig(Path("/etc/bridge.sock")),
        ("10.0.0.1", "fd00::1"),
        LastKnownPolicy.WAIT,
        Path("/etc/state"),
        events=False,
        cluster_domain="k8s.example",
        tenants=(TenantDomain("a", "a.example"),),
        resolv_conf="/run/systemd/resolve/resolv.conf",
        plain_kube_dns=False,
        status=StatusConfig(Path("/etc/status.sock")),
    )


def test_an_empty_resolv_conf_is_allowed() -> None:
    assert read(LEAST + "resolvConf: ''\n").resolv_conf == ""


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (
            LEAST.replace("node-1", "'No Node'") + "clusterDomain: a..b\nresolvConf: here\nnodeIPs: [x]\n",
            (
                "nodeName: expected the name of a node, got 'No Node'",
                "clusterDomain: expected a domain, got 'a..b'",
                "resolvConf: expected an absolute path or nothing, got 'here'",
                "nodeIPs: expected an address, got 'x'",
            ),
        ),
        (
            LEAST + "tenants: [{key: A, clusterDomain: .}, {key: b, clusterDomain: b}, "
            "{key: b, clusterDomain: c}]\n",
            (
                "tenants[0].key: cluster key 'A' is not a DNS label of at most 63 characters",
                "tenants[0].clusterDomain: expected a domain, got '.'",
                "tenants: b is listed more than once",
            ),
        ),
        (
            LEAST + "tenants: [{key: b, clusterDomain: b}, {key: b, clusterDomain: c}]\n",
            ("tenants: b is listed more than once",),
        ),
        (
            LEAST + "status: {address: 10.0.0.1, socket: x}\n",
            (
                "status.socket: give socket or address, not both",
                "status.address: expected a loopback address, got '10.0.0.1'",
            ),
        ),
    ],
)
def test_all_problems_are_reported_at_once(text: str, errors: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert caught.value.errors == errors
