# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path
from typing import Any

import pytest

from devkit.kubelet.pods import FakePod, pod_list
from tenancy.ownership import ContainerPolicy, Owned
from vnagent.pages.page import PageError
from vnagent.pages.podlist import owned_pods

SAMPLES = Path(__file__).parents[3] / "k8s" / "samples"
INJECTING = ContainerPolicy(frozenset({"mesh-proxy"}))


def annotations(tenant: str, namespace: str, uid: str, **more: str) -> dict[str, str]:
    keys = ("tenancy.x-k8s.io/cluster", "tenancy.x-k8s.io/namespace", "tenancy.x-k8s.io/uid")
    return dict(zip(keys, (tenant, namespace, uid), strict=True)) | more


SHOP = FakePod(
    "ten-a-web",
    "shop",
    "s-1001",
    ("app",),
    ("setup",),
    ("dbg",),
    ("mesh-proxy",),
    annotations=annotations("ten-a", "web", "a-0001", **{"vcnode.io/containers": "app"}),
)
VAULT = FakePod("ten-a-b-c", "vault", "s-3001", annotations=annotations("ten-a-b", "c", "ab-0001"))
HOST = FakePod("kube-system", "etcd-node-1", "s-9001")


def page(*pods: FakePod, kind: str = "PodList", item_kind: str = "") -> bytes:
    document = pod_list(pods)
    of_item = {"apiVersion": "v1", "kind": item_kind} if item_kind else {}
    items = [of_item | item for item in document["items"]]
    return json.dumps(document | {"kind": kind, "items": items}).encode()


OWNED_SHOP = Owned(
    *("ten-a", "web", "shop", "a-0001", "ten-a-web", "shop", "s-1001"),
    frozenset({"app", "setup", "dbg"}),
    images=tuple((name, "registry.example/shop:1") for name in ("app", "dbg", "setup")),
)
OWNED_VAULT = Owned(
    *("ten-a-b", "c", "vault", "ab-0001", "ten-a-b-c", "vault", "s-3001"),
    frozenset({"app"}),
    images=(("app", "registry.example/vault:1"),),
)


def test_the_pods_of_tenants() -> None:
    assert owned_pods(page(SHOP, VAULT, HOST), INJECTING) == ((OWNED_SHOP, OWNED_VAULT), ())


def test_kubectls_list_is_accepted() -> None:
    printed = page(SHOP, HOST, kind="List", item_kind="Pod")
    assert owned_pods(printed, INJECTING) == ((OWNED_SHOP,), ())


def test_the_trusted_containers_annotation() -> None:
    trusting = ContainerPolicy(frozenset({"mesh-proxy"}), trusts_annotation=True)
    (shop,), _ = owned_pods(page(SHOP), trusting)
    assert shop.containers == {"app"}
    assert shop.images == (("app", "registry.example/shop:1"),)


def test_invalid_tenant_pods_are_reported() -> None:
    half = FakePod("x", "half", "s-1", annotations={"tenancy.x-k8s.io/cluster": "ten-a"})
    bad = FakePod("y", "bad\n" + "x" * 400, "s-2", annotations=annotations("ten-a", "web", "u"))
    owned, problems = owned_pods(page(half, VAULT, bad), INJECTING)
    assert owned == (OWNED_VAULT,)
    assert problems == (
        "pod 'x/half': not all of its ownership annotations are set",
        "pod 'y/bad\\n" + "x" * 314 + "': its own namespace, name or uid is not valid",
    )


def test_a_duplicate_name_is_not_served() -> None:
    other = FakePod(VAULT.namespace, VAULT.name, "s-7777")
    assert owned_pods(page(SHOP, VAULT, other), INJECTING) == (
        (OWNED_SHOP,),
        ("pod 'ten-a-b-c/vault': another pod has its name",),
    )


@pytest.mark.parametrize("items", [b"null", b"[]"])
def test_no_pods(items: bytes) -> None:
    assert owned_pods(b'{"kind":"PodList","items":' + items + b"}", INJECTING) == ((), ())


def test_the_last_of_duplicate_keys_counts() -> None:
    listed = page(VAULT).replace(
        b'"tenancy.x-k8s.io/cluster": "ten-a-b"',
        b'"tenancy.x-k8s.io/cluster": "ten-a", "tenancy.x-k8s.io/cluster": "ten-a-b"',
    )
    assert owned_pods(listed, INJECTING) == ((OWNED_VAULT,), ())


GOOD = page(SHOP, VAULT)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"<html>",
        GOOD[: len(GOOD) // 2],
        GOOD + b"x",
        GOOD.replace(b'"PodList"', b'"ServiceList"'),
        GOOD.replace(b'"uid": "s-1001", ', b""),
        GOOD.replace(b'"uid": "s-1001"', b'"uid": 1001'),
        GOOD.replace(b"s-1001", b"\xff"),
        GOOD.replace(b"s-1001", b"\\ud800"),
        page(SHOP, kind="List", item_kind="Service"),
        b'{"kind":"PodList","x":' + b"[" * 100_000,
    ],
)
def test_another_list_is_an_error(bad: bytes) -> None:
    with pytest.raises(PageError):
        owned_pods(bad, INJECTING)


def test_a_real_kubelets_page() -> None:
    raw = (SAMPLES / "pods.json").read_bytes()
    document: dict[str, Any] = json.loads(raw)
    owned, problems = owned_pods(raw, INJECTING)
    assert problems == ()
    assert {(pod.super_uid, pod.uid) for pod in owned} == {
        (item["metadata"]["uid"], item["metadata"]["annotations"]["tenancy.x-k8s.io/uid"])
        for item in document["items"]
        if "tenancy.x-k8s.io/uid" in item["metadata"]["annotations"]
    }
    assert len({pod.tenant for pod in owned}) > 1
    assert not any("mesh-proxy" in pod.containers for pod in owned)
