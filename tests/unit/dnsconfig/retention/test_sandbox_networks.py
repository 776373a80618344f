# SPDX-License-Identifier: Apache-2.0
"""What a pod's sandbox is attached to, step by step."""

from typing import Any

from bridge_api.messages import Guest
from dnsconfig.cluster.objects import PodObject, decode_object
from dnsconfig.retention.sandbox_networks import Attachment, Attachments
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
    attachments = Attachments()
    assert attachments.look(pod(), None, has_all_guests=True) == ()
    assert attachments.look(pod(), BLUE, has_all_guests=False) == ("blue",)
    attachments.given(UID, ("other",))
    # Away, and back with some of its guests only; whatever the pod's status says.
    assert attachments.look(pod(), None, has_all_guests=False) == ("blue",)
    assert attachments.look(pod("False"), None, has_all_guests=False) == ("blue",)
    assert attachments.look(pod(), RED, has_all_guests=True) == ("red", "blue")
    assert attachments.look(pod(), None, has_all_guests=True) == ()
    assert attachments.known == {}


def test_without_a_guest_the_first_resolver_says_it() -> None:
    attachments = Attachments()
    attachments.given(UID, ())
    assert attachments.known == {}
    attachments.given(UID, ("blue",))
    attachments.given(UID, ("red",))
    for _ in range(3):
        assert attachments.look(pod(), None, has_all_guests=True) == ("blue",)
    # A guest knows better.
    assert attachments.look(pod(), RED, has_all_guests=True) == ("red", "blue")
    attachments.forget(UID)
    assert attachments.known == {}


def test_a_pods_status_says_when_its_sandbox_is_there_and_when_it_has_gone() -> None:
    attachments = Attachments()
    # Given before there was a sandbox: the label of then counts, not that of the first text.
    attachments.given(UID, ("blue",))
    assert attachments.look(pod("False"), None, has_all_guests=True) == ()
    for network in ("red", "blue"):
        assert attachments.look(pod("True", "two", network="red"), None, has_all_guests=True) == ("red",)
        assert attachments.look(pod("True", "two", network), None, has_all_guests=True) == ("red",)
    assert attachments.known == {UID: Attachment(("red",), since="two")}
    assert attachments.look(pod("True", "three", "blue"), None, has_all_guests=True) == ("blue",)
    # It may be a guest's as long as not all were told.
    assert Attachments().look(pod("True"), None, has_all_guests=False) == ()


def test_what_was_known_before_the_status_said_anything_counts_until_it_says_another() -> None:
    for after in (pod("False", "two"), pod("Unknown", "two")):
        attachments = Attachments()
        attachments.given(UID, ("blue",))
        # Given before there was a sandbox, or before an older kubelet was replaced.
        assert attachments.look(pod(), None, has_all_guests=True) == ("blue",)
        assert attachments.look(pod("True"), None, has_all_guests=True) == ("blue",)
        assert attachments.known == {UID: Attachment(("blue",), since="one")}
        assert attachments.look(pod("True"), None, has_all_guests=True) == ("blue",)
        assert attachments.look(after, None, has_all_guests=True) == ()
        assert attachments.known == {}
    attachments = Attachments()
    attachments.given(UID, ("blue",))
    assert attachments.look(pod("True", None), None, has_all_guests=True) == ("blue",)
