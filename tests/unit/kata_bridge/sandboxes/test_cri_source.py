# SPDX-License-Identifier: Apache-2.0
from kata_bridge.cri.messages import (
    LinuxPodSandboxStatus,
    Namespace,
    NamespaceMode,
    NamespaceOption,
    PodIP,
    PodSandbox,
    PodSandboxMetadata,
    PodSandboxNetworkStatus,
    PodSandboxState,
    PodSandboxStatus,
    PodSandboxStatusResponse,
)
from kata_bridge.sandboxes.core.sandbox import SandboxObservation
from kata_bridge.sandboxes.cri_source import detailed, observation_of

ITEM = PodSandbox(
    "s",
    PodSandboxMetadata("web", "u", "n", 2),
    PodSandboxState.SANDBOX_READY,
    9,
    {"app": "web"},
    {"a": "b"},
    "kata",
)
INFO = {"info": '{"runtimeSpec":{"linux":{"namespaces":[{"type":"network","path":"/run/netns/x"}]}}}'}


def test_a_list_item_has_no_addresses() -> None:
    assert observation_of(ITEM) == SandboxObservation(
        id="s",
        namespace="n",
        name="web",
        uid="u",
        labels={"app": "web"},
        annotations={"a": "b"},
        runtime_handler="kata",
        attempt=2,
        created_at_ns=9,
    )
    assert not observation_of(PodSandbox("s", state=PodSandboxState.SANDBOX_NOTREADY)).is_alive


def test_a_status_has_addresses_and_namespace() -> None:
    status = PodSandboxStatus(
        network=PodSandboxNetworkStatus("10.1.0.5", (PodIP("fd00::5"),)),
        linux=LinuxPodSandboxStatus(Namespace(NamespaceOption(NamespaceMode.POD))),
    )
    observation = detailed(ITEM, PodSandboxStatusResponse(status, INFO))
    assert (observation.ips, observation.netns, observation.is_host_network) == (
        ("10.1.0.5", "fd00::5"),
        "/run/netns/x",
        False,
    )


def test_an_empty_status_has_no_details() -> None:
    observation = detailed(ITEM, PodSandboxStatusResponse())
    assert (observation.ips, observation.netns, observation.is_host_network) == ((), "", False)


def test_a_status_shows_the_host_network() -> None:
    linux = LinuxPodSandboxStatus(Namespace(NamespaceOption(NamespaceMode.NODE)))
    assert detailed(ITEM, PodSandboxStatusResponse(PodSandboxStatus(linux=linux))).is_host_network
