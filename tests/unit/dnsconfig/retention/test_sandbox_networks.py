# SPDX-License-Identifier: Apache-2.0
"""The networks of a pod's sandbox, step by step."""

from typing import Any

from bridge_api.messages import Guest
from dnsconfig.cluster.objects import PodObject
from dnsconfig.retention.sandbox_networks import KnownSandbox, SandboxNetworks
from tests.cluster_states import decode_object
from tests.unit.dnsconfig import objects

UID = "uid-a-shop-web-0"
BLUE = Guest("g1", uid=UID, networks=("blue",))
RED = Guest("g2", uid=UID, networks=("red", "blue"))


def pod(status: str = "", since: str | None = "one", network: str = "blue") -> PodObject:
    """A pod with this value of the sandbox condition; without it if empty."""
    item: dict[str, Any] = objects.pod("a", network=network)
    if status:
        condition = {"type": "PodReadyToStartContainers", "status": status, "lastTransitionTime": since}
        item["status"] = {"conditions": [{"type": "Ready", "status": "False"}, condition]}
    found = decode_object(item)
    assert isinstance(found, PodObject)
    return found


def test_a_guests_networks_count_until_its_removal() -> None:
    sandbox_networks = SandboxNetworks()
    assert sandbox_networks.observe(pod(), None, has_all_guests=True) == ()
    assert sandbox_networks.observe(pod(), BLUE, has_all_guests=False) == ("blue",)
    sandbox_networks.infer(UID, ("other",))
    # kata-bridge is away, and back with some guests only, whatever the pod's status is.
    assert sandbox_networks.observe(pod(), None, has_all_guests=False) == ("blue",)
    assert sandbox_networks.observe(pod("False"), None, has_all_guests=False) == ("blue",)
    assert sandbox_networks.observe(pod(), RED, has_all_guests=True) == ("red", "blue")
    assert sandbox_networks.observe(pod(), None, has_all_guests=True) == ()
    assert sandbox_networks.known == {}


def test_without_a_condition_the_first_resolver_counts() -> None:
    sandbox_networks = SandboxNetworks()
    sandbox_networks.infer(UID, ())
    assert sandbox_networks.known == {}
    sandbox_networks.infer(UID, ("blue",))
    sandbox_networks.infer(UID, ("red",))
    for _ in range(3):
        assert sandbox_networks.observe(pod(), None, has_all_guests=True) == ("blue",)
    # A guest takes precedence.
    assert sandbox_networks.observe(pod(), RED, has_all_guests=True) == ("red", "blue")
    sandbox_networks.forget(UID)
    assert sandbox_networks.known == {}


def test_the_condition_starts_and_ends_a_sandbox() -> None:
    sandbox_networks = SandboxNetworks()
    # Applied before the sandbox: the label at its creation counts, not that of the first text.
    sandbox_networks.infer(UID, ("blue",))
    assert sandbox_networks.observe(pod("False"), None, has_all_guests=True) == ()
    for network in ("red", "blue"):
        assert sandbox_networks.observe(pod("True", "two", network="red"), None, has_all_guests=True) == (
            "red",
        )
        assert sandbox_networks.observe(pod("True", "two", network), None, has_all_guests=True) == ("red",)
    assert sandbox_networks.known == {UID: KnownSandbox(("red",), since="two")}
    assert sandbox_networks.observe(pod("True", "three", "blue"), None, has_all_guests=True) == ("blue",)
    # It may be a guest until all guests are reported.
    assert SandboxNetworks().observe(pod("True"), None, has_all_guests=False) == ()


def test_an_inferred_sandbox_lasts_until_the_condition() -> None:
    for after in (pod("False", "two"), pod("Unknown", "two")):
        sandbox_networks = SandboxNetworks()
        sandbox_networks.infer(UID, ("blue",))
        # Applied before the sandbox, or before an older kubelet was replaced.
        assert sandbox_networks.observe(pod(), None, has_all_guests=True) == ("blue",)
        assert sandbox_networks.observe(pod("True"), None, has_all_guests=True) == ("blue",)
        assert sandbox_networks.known == {UID: KnownSandbox(("blue",), since="one")}
        assert sandbox_networks.observe(pod("True"), None, has_all_guests=True) == ("blue",)
        assert sandbox_networks.observe(after, None, has_all_guests=True) == ()
        assert sandbox_networks.known == {}
    sandbox_networks = SandboxNetworks()
    sandbox_networks.infer(UID, ("blue",))
    assert sandbox_networks.observe(pod("True", None), None, has_all_guests=True) == ("blue",)
