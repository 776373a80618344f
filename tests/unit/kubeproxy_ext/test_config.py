# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from daemonkit.config.binding import ConfigError, parse
from daemonkit.config.status_config import StatusConfig
from kubeproxy_ext.compute.rules_probe import RulesProbe
from kubeproxy_ext.config import (
    KIND,
    BridgeConfig,
    KubeproxyExtConfiguration,
    LastKnownPolicy,
    SuperClusterConfig,
    TenantRanges,
)

LEAST = """
apiVersion: vcnode.io/v1alpha1
kind: KubeproxyExtConfiguration
nodeName: node-1
superCluster: {kubeconfigFile: kubeconfig}
"""
ALL = """
bridge: {socket: bridge.sock}
serviceCIDRs: [10.96.0.0/12, "fd00::/108"]
tenants:
- {key: a, serviceCIDRs: [172.20.0.0/16]}
lastKnown: wait
stateDirectory: state
holdSeconds: 60
status: {socket: status.sock}
"""


def read(text: str) -> KubeproxyExtConfiguration:
    return parse(text.encode(), KubeproxyExtConfiguration, kind=KIND, source="x", directory=Path("/etc"))


def test_least_configuration() -> None:
    assert read(LEAST) == KubeproxyExtConfiguration("node-1", SuperClusterConfig(Path("/etc/kubeconfig")))


def test_full_configuration() -> None:
    assert read(LEAST + ALL) == KubeproxyExtConfiguration(
        "node-1",
        SuperClusterConfig(Path("/etc/kubeconfig")),
        BridgeConfig(Path("/etc/bridge.sock")),
        ("10.96.0.0/12", "fd00::/108"),
        (TenantRanges("a", ("172.20.0.0/16",)),),
        LastKnownPolicy.WAIT,
        Path("/etc/state"),
        StatusConfig(Path("/etc/status.sock")),
        hold_seconds=60.0,
    )


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (
            LEAST.replace("node-1", "Node_1"),
            ["nodeName: expected the name of a node, got 'Node_1'"],
        ),
        (
            LEAST + "serviceCIDRs: [10.96.0.0, 10.0.0.0/33]\n",
            [
                "serviceCIDRs: expected an address range, got '10.96.0.0'",
                "serviceCIDRs: expected an address range, got '10.0.0.0/33'",
            ],
        ),
        (
            LEAST + "tenants: [{key: kube-system, serviceCIDRs: [x]}, {key: a, serviceCIDRs: []}]\n",
            [
                "tenants[0].key: cluster key kube-system is a namespace of the super cluster itself",
                "tenants[0].serviceCIDRs: expected an address range, got 'x'",
            ],
        ),
        (
            LEAST + "tenants: [{key: a, serviceCIDRs: []}, {key: a, serviceCIDRs: []}]\n",
            ["tenants: a is listed more than once"],
        ),
        (
            LEAST + "status: {address: 10.0.0.1, socket: x}\n",
            [
                "status.socket: give socket or address, not both",
                "status.address: expected a loopback address, got '10.0.0.1'",
            ],
        ),
        (
            LEAST + "holdSeconds: -1\nlastKnown: never\nserviceCidrs: []\n",
            [
                "holdSeconds: expected a number between 0.0 and 86400.0, got -1",
                "lastKnown: expected one of apply, wait, got 'never'",
                "serviceCidrs: unknown key; did you mean 'serviceCIDRs'?",
            ],
        ),
        (LEAST.replace("superCluster: {kubeconfigFile: kubeconfig}", ""), ["superCluster: required"]),
    ],
)
def test_configuration_errors(text: str, errors: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert list(caught.value.errors) == errors


def test_canary_addresses_have_their_family() -> None:
    canary = read(LEAST + "canary: {ipv4Address: 192.0.2.61}\n").rules_probe
    assert canary is not None
    assert canary.value() == RulesProbe("192.0.2.61", None, 10561)
    for text, why in (
        ("{}", "canary.ipv4Address: give at least one"),
        ("{ipv4Address: '2001:db8::1'}", "canary.ipv4Address: expected a canonical address of this family"),
        ("{ipv6Address: '2001:DB8::1'}", "canary.ipv6Address: expected a canonical address of this family"),
        ("{ipv4Address: x}", "canary.ipv4Address: expected a canonical address of this family"),
    ):
        with pytest.raises(ConfigError, match=why):
            read(LEAST + f"canary: {text}\n")
