# SPDX-License-Identifier: Apache-2.0
import pytest

from bridge_api.messages import Guest
from daemonkit.kube.resources import ObjectMeta
from dnsconfig.cluster.objects import MIRROR, PodObject
from dnsconfig.cluster.snapshot import Snapshot
from dnsconfig.delivery.guests_without_pod import guests_without_pod, wait_message

KEY = ("a-shop", "web")


def guest(uid: str = "u1", tenant: str = "a") -> Guest:
    return Guest(id="g1", uid=uid, namespace=KEY[0], name=KEY[1], tenant=tenant)


def pods(uid: str) -> dict[tuple[str, str], PodObject]:
    return {KEY: PodObject(ObjectMeta(KEY[1], KEY[0], uid))}


@pytest.mark.parametrize(
    ("each", "snapshot", "retaining", "is_found"),
    [
        (guest(), Snapshot(), (), True),
        (guest(), Snapshot(pods=pods("u2")), (), True),
        (guest(), Snapshot(pods=pods("u1")), (), False),
        (guest(), Snapshot(), ("u1",), False),
        (guest(uid=""), Snapshot(pods=pods("u2")), (), False),
        (guest(uid=""), Snapshot(pods={}), (), True),
        (guest(tenant=""), Snapshot(), (), False),
    ],
)
def test_a_tenants_guest_without_a_known_pod_is_found(
    each: Guest, snapshot: Snapshot, retaining: tuple[str, ...], is_found: bool
) -> None:
    assert bool(guests_without_pod([each], snapshot, retaining)) is is_found


@pytest.mark.parametrize(
    ("snapshot", "message"),
    [
        (Snapshot(unreadable={("Pod", KEY): "bad"}), "the pod's object cannot be read: bad"),
        (Snapshot(), "this node's pods are not synced with the API server yet"),
        (Snapshot(pods={}), "the API server has no such pod on this node (any more)"),
        (Snapshot(pods=pods("u2")), "the API server has another pod of this name on this node"),
    ],
)
def test_the_wait_message_names_the_cause(snapshot: Snapshot, message: str) -> None:
    assert wait_message(guest(), snapshot) == message


def test_a_static_pods_message_has_the_remedy() -> None:
    mirror = {KEY: PodObject(ObjectMeta(KEY[1], KEY[0], "u2", annotations={MIRROR: ""}))}
    assert wait_message(guest(), Snapshot(pods=mirror)).endswith("so create it there")
