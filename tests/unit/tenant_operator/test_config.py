# SPDX-License-Identifier: Apache-2.0
"""vc-operator's configuration: what is left out has defaults, and each wrong value is named by its path."""

from pathlib import Path

import pytest

from daemonkit.config.binding import ConfigError, parse
from tenant_operator.config import KIND, FenceConfig, OperatorConfiguration, SharedEtcdConfig

LEAST = """
apiVersion: vcnode.io/v1alpha1
kind: OperatorConfiguration
superCluster: {serviceCidrs: [10.96.0.0/16], podCidrs: [10.244.0.0/16], nodeCidrs: [192.168.0.0/24]}
nodes: {servingCaFile: /ca.crt}
"""


def read(text: str) -> OperatorConfiguration:
    return parse(text.encode(), OperatorConfiguration, kind=KIND, source="x", directory=Path("/etc"))


def test_control_planes_reach_nothing_more_by_default() -> None:
    found = read(LEAST)
    assert (found.fence, found.shared_etcd) == (FenceConfig((), (), ()), None)


def test_gaps_in_the_fence_are_read() -> None:
    fence = "fence: {dnsCidrs: [169.254.20.10/32], clientCidrs: ['fd00::/64'], storeCidrs: [192.0.2.0/28]}"
    found = read(f"{LEAST}{fence}\nsharedEtcd: {{endpoints: ['https://192.0.2.7:2379']}}\n")
    assert found.fence == FenceConfig(("169.254.20.10/32",), ("fd00::/64",), ("192.0.2.0/28",))
    assert found.shared_etcd == SharedEtcdConfig(("https://192.0.2.7:2379",))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fence: {dnsCidrs: [10.0.0.1/8]}", "fence.dnsCidrs: expected a network"),
        ("fence: {clientCidrs: [x]}", "fence.clientCidrs: expected a network"),
        ("sharedEtcd: {endpoints: ['https://192.0.2.7:2379']}", "fence.storeCidrs: required with sharedEtcd"),
        ("sharedEtcd: {endpoints: []}", "sharedEtcd.endpoints"),
        *(
            (f"sharedEtcd: {{endpoints: ['{url}']}}", "sharedEtcd.endpoints: expected a URL such as")
            for url in (
                "http://192.0.2.7:2379",
                "https://192.0.2.7:2380",
                "https://192.0.2.7",
                "https://192.0.2.7:2379/x",
                "https://:2379",
                "https://[::1:2379",
                "192.0.2.7:2379",
            )
        ),
    ],
)
def test_what_cannot_be_used_is_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"{LEAST}{text}\n")
    assert problem in str(caught.value)
