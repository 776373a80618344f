# SPDX-License-Identifier: Apache-2.0
"""The decoded fields of NRI's messages. The k8s ring compares their numbers with NRI's own file."""

from daemonkit.protobuf import decode, encode
from kata_bridge.nri.messages import (
    Container,
    ContainerAdjustment,
    CreateContainerResponse,
    LinuxNamespace,
    LinuxPodSandbox,
    Mount,
    PodSandbox,
)


def test_a_containers_environment_is_not_decoded() -> None:
    # id "c", args ["a"], env ["PASSWORD=x"], pid 7
    wire = bytes.fromhex("0a01633a0161420a" + b"PASSWORD=x".hex() + "6007")
    assert decode(Container, wire) == Container(id="c", pid=7)
    assert "PASSWORD" not in repr(decode(Container, wire))


def test_network_namespace_of_a_pod() -> None:
    ipc = LinuxNamespace("ipc", "/proc/1/ns/ipc")
    network = LinuxNamespace("network", "/var/run/netns/cni-1")
    assert PodSandbox(linux=LinuxPodSandbox((ipc, network))).network_namespace == "/var/run/netns/cni-1"
    assert PodSandbox(linux=LinuxPodSandbox((ipc,))).network_namespace == ""
    assert PodSandbox().network_namespace == ""


def test_a_mount_is_encoded_byte_for_byte() -> None:
    mount = Mount("/etc/resolv.conf", "bind", "/run/x", ("rbind", "ro"))
    response = CreateContainerResponse(ContainerAdjustment(mounts=(mount,)))
    assert encode(response) == (
        b"\x0a\x2d\x1a\x2b\x0a\x10/etc/resolv.conf\x12\x04bind\x1a\x06/run/x\x22\x05rbind\x22\x02ro"
    )
