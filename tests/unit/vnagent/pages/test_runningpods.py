# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from devkit.kubelet.pods import FakePod, running_pod_list
from tenancy.ownership import Owned, OwnerIndex
from tests.rebuilt_pages import tenants_page
from vnagent.pages.page import PageError
from vnagent.pages.runningpods import RUNNING_PODS

SHOP = FakePod("ten-a-web", "shop", "s-1001", ("app",), ("setup",), ("dbg",), ("mesh-proxy",))
BANK = FakePod("ten-b-web", "bank", "s-2001")
HOST = FakePod("kube-system", "etcd-node-1", "s-9001")
INDEX = OwnerIndex(
    [
        Owned(
            "ten-a", "web", "shop", "a-1", "ten-a-web", "shop", "s-1001", frozenset({"app", "setup", "dbg"})
        ),
        Owned("ten-b", "web", "bank", "b-1", "ten-b-web", "bank", "s-2001", frozenset({"app"})),
    ]
)
PAGE = json.dumps(running_pod_list([SHOP, BANK, HOST])).encode()


def test_the_tenants_pods_and_containers() -> None:
    assert json.loads(tenants_page(RUNNING_PODS, PAGE, INDEX, "ten-a")) == {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": "shop", "namespace": "web", "uid": "a-1"},
                "spec": {"containers": [{"name": "app"}, {"name": "dbg"}]},
                "status": {},
            }
        ],
    }


def test_a_tenant_without_pods() -> None:
    empty = b'{"items":[],"kind":"PodList","apiVersion":"v1","metadata":{}}'
    assert tenants_page(RUNNING_PODS, PAGE, INDEX, "ten-c") == empty
    assert tenants_page(RUNNING_PODS, b'{"kind":"PodList","items":null}', INDEX, "ten-a") == empty


def test_a_pod_of_another_uid_is_another_pod() -> None:
    assert (
        json.loads(tenants_page(RUNNING_PODS, PAGE.replace(b"s-1001", b"s-7777"), INDEX, "ten-a"))["items"]
        == []
    )


@pytest.mark.parametrize(
    "bad", [b"", b"{", b"[]", PAGE[:-9], PAGE.replace(b"PodList", b"NodeList"), PAGE.replace(b"[", b"{", 1)]
)
def test_another_page_is_an_error(bad: bytes) -> None:
    with pytest.raises(PageError):
        tenants_page(RUNNING_PODS, bad, INDEX, "ten-a")
