# SPDX-License-Identifier: Apache-2.0
import pytest

from kata_bridge.sandboxes.core.runtimes import HandlerChannels, channels_of
from kata_bridge.sandboxes.core.sandbox import Sandbox

RULES = (
    HandlerChannels(("kata-remote",), ()),
    HandlerChannels(("kata*",), ("agent", "stock")),
    HandlerChannels(("runc", ""), ("netns",)),
)


@pytest.mark.parametrize(
    ("handler", "has_shim", "channels"),
    [
        ("kata", True, ("agent", "stock")),
        ("kata-qemu", False, ("agent", "stock")),
        ("kata-remote", True, ()),
        ("runc", False, ("netns",)),
        ("", False, ("netns",)),
        ("gvisor", False, ()),
        ("my-vms", True, ("agent", "stock")),
    ],
)
def test_the_handler_decides_else_the_shim_socket(
    handler: str, has_shim: bool, channels: tuple[str, ...]
) -> None:
    sandbox = Sandbox(id="s", namespace="n", name="p", uid="u", runtime_handler=handler)
    assert channels_of(sandbox, RULES, has_shim=has_shim) == channels


def test_a_pod_in_the_host_network_is_never_a_guest() -> None:
    for extra in ((), ("netns",)):
        sandbox = Sandbox("s", "n", "p", "u", runtime_handler="kata", is_host_network=True, channels=extra)
        assert channels_of(sandbox, RULES, has_shim=True) == ()


def test_the_channels_of_a_file_come_first() -> None:
    sandbox = Sandbox(id="s", namespace="n", name="p", uid="u", runtime_handler="kata", channels=("netns",))
    assert channels_of(sandbox, RULES, has_shim=True) == ("netns",)
