# SPDX-License-Identifier: Apache-2.0
"""The fields of a status. The k8s ring compares their numbers with CRI's own file."""

from kata_bridge.cri.messages import (
    LIST_POD_SANDBOX,
    LinuxPodSandboxStatus,
    Namespace,
    NamespaceMode,
    NamespaceOption,
    PodIP,
    PodSandboxNetworkStatus,
    PodSandboxStatus,
)


def test_addresses_of_a_sandbox() -> None:
    network = PodSandboxNetworkStatus("10.0.0.7", (PodIP("fd00::7"),))
    assert PodSandboxStatus(network=network).ips == ("10.0.0.7", "fd00::7")
    assert PodSandboxStatus(network=PodSandboxNetworkStatus()).ips == ()
    assert PodSandboxStatus().ips == ()


def test_host_network_of_a_sandbox() -> None:
    for mode, is_host in ((NamespaceMode.NODE, True), (NamespaceMode.POD, False)):
        linux = LinuxPodSandboxStatus(Namespace(NamespaceOption(mode)))
        assert PodSandboxStatus(linux=linux).is_host_network is is_host
    assert not PodSandboxStatus(linux=LinuxPodSandboxStatus(Namespace())).is_host_network
    assert not PodSandboxStatus().is_host_network


def test_names_of_calls() -> None:
    assert LIST_POD_SANDBOX.path == "/runtime.v1.RuntimeService/ListPodSandbox"
