# SPDX-License-Identifier: Apache-2.0
import pytest

from kata_bridge.nri.messages import LinuxNamespace, LinuxPodSandbox, PodSandbox
from kata_bridge.sandboxes.core.sandbox import SandboxObservation
from kata_bridge.sandboxes.nri_source import observation_of

NETNS = LinuxPodSandbox((LinuxNamespace("pid", "/proc/7/ns/pid"), LinuxNamespace("network", "/run/netns/x")))


def test_all_fields_of_nri_are_read() -> None:
    pod = PodSandbox(
        "s", "web", "u", "n", {"app": "web"}, {"a": "b"}, "kata", NETNS, 7, ("10.1.0.5", "fd00::5")
    )
    assert observation_of(pod) == SandboxObservation(
        id="s",
        namespace="n",
        name="web",
        uid="u",
        labels={"app": "web"},
        annotations={"a": "b"},
        runtime_handler="kata",
        ips=("10.1.0.5", "fd00::5"),
        netns="/run/netns/x",
    )


@pytest.mark.parametrize(
    ("linux", "pid", "is_alive", "is_host_network"),
    [
        (NETNS, 7, True, False),
        (NETNS, 0, True, False),  # containerd 1.7 runs the hook before it knows a pid
        (None, 7, True, True),
        (LinuxPodSandbox(), 7, True, True),
        (None, 0, False, False),
    ],
)
def test_pid_and_namespace_show_alive_and_host_network(
    linux: LinuxPodSandbox | None, pid: int, is_alive: bool, is_host_network: bool
) -> None:
    observation = observation_of(PodSandbox("s", "web", "u", "n", linux=linux, pid=pid))
    assert (observation.is_alive, observation.is_host_network) == (is_alive, is_host_network)
