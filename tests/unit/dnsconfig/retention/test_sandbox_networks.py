# SPDX-License-Identifier: Apache-2.0
"""What a pod's sandbox is attached to, step by step."""

from typing import Any

from bridge_api.messages import Guest
from dnsconfig.cluster.objects import PodObject, decode_object
from dnsconfig.retention.sandbox_networks import KnownSandbox, SandboxNetworks
from tests.unit.dnsconfig import objects

UID = "uid-a-shop-web-0"
BLUE = Guest("g1", uid=UID, networks=("blue",))
RED = Guest("g2", uid=UID, networks=("red", "blue"))


def pod(status: str = "", since: str | None = "one", network: str = "blue") -> PodObject:
    """A pod whose status says this of its sandbox; nothing where it is empty."""
    item: dict[str, Any] = objects.pod("a", network=network)
    if status:
        condition = {"type": "PodReadyToStartContainers", "status": status, "lastTransitionTime": since}
        item["status"] = {"conditions": [{"type": "Ready", "status": "False"}, condition]}
    found = decode_object(item)
    assert isinstance(found, PodObject)
    return found


def test_a_guest_is_where_kata_bridge_says_until_it_says_that_it_has_gone() -> None:
    sandbox_networks = SandboxNetworks()
    assert sandbox_networks.observe(pod(), None, has_all_guests=True) == ()
    assert sandbox_networks.observe(pod(), BLUE, has_all_guests=False) == ("blue",)
    sandbox_networks.infer(UID, ("other",))
    # Away, and back with some of its guests only; whatever the pod's status says.
    assert sandbox_networks.observe(pod(), None, has_all_guests=False) == ("blue",)
    assert sandbox_networks.observe(pod("False"), None, has_all_guests=False) == ("blue",)
    assert sandbox_networks.observe(pod(), RED, has_all_guests=True) == ("red", "blue")
    assert sandbox_networks.observe(pod(), None, has_all_guests=True) == ()
    assert sandbox_networks.known == {}


def test_without_a_guest_the_first_resolver_says_it() -> None:
    sandbox_networks = SandboxNetworks()
    sandbox_networks.infer(UID, ())
    assert sandbox_networks.known == {}
    sandbox_networks.infer(UID, ("blue",))
    sandbox_networks.infer(UID, ("red",))
    for _ in range(3):
        assert sandbox_networks.observe(pod(), None, has_all_guests=True) == ("blue",)
    # A guest knows better.
    assert sandbox_networks.observe(pod(), RED, has_all_guests=True) == ("red", "blue")
    sandbox_networks.forget(UID)
    assert sandbox_networks.known == {}


def test_a_pods_status_says_when_its_sandbox_is_there_and_when_it_has_gone() -> None:
    sandbox_networks = SandboxNetworks()
    # Given before there was a sandbox: the label of then counts, not that of the first text.
    sandbox_networks.infer(UID, ("blue",))
    assert sandbox_networks.observe(pod("False"), None, has_all_guests=True) == ()
    for network in ("red", "blue"):
        assert sandbox_networks.observe(pod("True", "two", network="red"), None, has_all_guests=True) == (
            "red",
        )
        assert sandbox_networks.observe(pod("True", "two", network), None, has_all_guests=True) == ("red",)
    assert sandbox_networks.known == {UID: KnownSandbox(("red",), since="two")}
    assert sandbox_networks.observe(pod("True", "three", "blue"), None, has_all_guests=True) == ("blue",)
    # It may be a guest's as long as not all were told.
    assert SandboxNetworks().observe(pod("True"), None, has_all_guests=False) == ()


def test_what_was_known_before_the_status_said_anything_counts_until_it_says_another() -> None:
    for after in (pod("False", "two"), pod("Unknown", "two")):
        sandbox_networks = SandboxNetworks()
        sandbox_networks.infer(UID, ("blue",))
        # Given before there was a sandbox, or before an older kubelet was replaced.
        assert sandbox_networks.observe(pod(), None, has_all_guests=True) == ("blue",)
        assert sandbox_networks.observe(pod("True"), None, has_all_guests=True) == ("blue",)
        assert sandbox_networks.known == {UID: KnownSandbox(("blue",), since="one")}
        assert sandbox_networks.observe(pod("True"), None, has_all_guests=True) == ("blue",)
        assert sandbox_networks.observe(after, None, has_all_guests=True) == ()
        assert sandbox_networks.known == {}
    sandbox_networks = SandboxNetworks()
    sandbox_networks.infer(UID, ("blue",))
    assert sandbox_networks.observe(pod("True", None), None, has_all_guests=True) == ("blue",)
