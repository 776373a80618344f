# SPDX-License-Identifier: Apache-2.0
import pytest

from kata_bridge.nri.messages import LinuxNamespace, LinuxPodSandbox, PodSandbox
from kata_bridge.sandboxes.core.sandbox import Seen
from kata_bridge.sandboxes.nri_source import seen_of

NETNS = LinuxPodSandbox((LinuxNamespace("pid", "/proc/7/ns/pid"), LinuxNamespace("network", "/run/netns/x")))


def test_all_that_nri_tells() -> None:
    pod = PodSandbox(
        "s", "web", "u", "n", {"app": "web"}, {"a": "b"}, "kata", NETNS, 7, ("10.1.0.5", "fd00::5")
    )
    assert seen_of(pod) == Seen(
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
def test_alive_dead_and_on_the_hosts_network(
    linux: LinuxPodSandbox | None, pid: int, is_alive: bool, is_host_network: bool
) -> None:
    seen = seen_of(PodSandbox("s", "web", "u", "n", linux=linux, pid=pid))
    assert (seen.is_alive, seen.is_host_network) == (is_alive, is_host_network)
