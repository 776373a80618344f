# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from daemonkit.kube.kubeconfig import parse
from daemonkit.kube.resources import NAMESPACES, PODS, VIRTUAL_CLUSTERS, Resource
from devkit.kube import wire as wire
from devkit.kube.storage import Selection, StatusError, Storage
from devkit.pki import Authority


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", (PODS, "", "")),
        ("/api/v1/namespaces/a/pods", (PODS, "a", "")),
        ("/api/v1/namespaces/a/pods/p", (PODS, "a", "p")),
        ("/api/v1/namespaces", (NAMESPACES, "", "")),
        ("/api/v1/namespaces/a", (NAMESPACES, "", "a")),
        ("/apis/tenancy.x-k8s.io/v1alpha1/virtualclusters", (VIRTUAL_CLUSTERS, "", "")),
    ],
)
def test_paths_name_resource_namespace_and_object(path: str, expected: tuple[Resource, str, str]) -> None:
    assert wire.target(path) == expected


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1", "/api/v1/namespaces/a/pods/p/log"])
def test_an_unknown_path_is_not_found(path: str) -> None:
    with pytest.raises(StatusError, match="404"):
        wire.target(path)


@pytest.mark.parametrize(
    ("method", "name", "query", "verb"),
    [
        ("GET", "", {}, "list"),
        ("GET", "", {"watch": "1"}, "watch"),
        ("GET", "p", {}, "get"),
        ("POST", "", {}, "create"),
        ("PUT", "p", {}, "update"),
        ("PATCH", "p", {}, "patch"),
        ("DELETE", "p", {}, "delete"),
        ("DELETE", "", {}, "deletecollection"),
    ],
)
def test_methods_map_to_verbs(method: str, name: str, query: dict[str, str], verb: str) -> None:
    assert wire.verb(method, name, query) == verb


@pytest.mark.parametrize(("method", "name"), [("TRACE", "p"), ("POST", "p"), ("PUT", ""), ("PATCH", "")])
def test_an_unknown_method_is_not_allowed(method: str, name: str) -> None:
    with pytest.raises(StatusError, match="405"):
        wire.verb(method, name, {})


def test_pages_of_a_list_share_one_revision() -> None:
    storage = Storage()
    for name in "abcde":
        storage.create(NAMESPACES, {"metadata": {"name": name}})
    every = Selection(NAMESPACES)
    first = wire.list_page(storage, every, {"limit": "2"})
    storage.delete(NAMESPACES, "", "d")
    storage.create(NAMESPACES, {"metadata": {"name": "bb"}})
    token = first["metadata"]["continue"]
    rest = wire.list_page(storage, every, {"limit": "9", "continue": token})
    assert [v["metadata"]["name"] for v in first["items"] + rest["items"]] == list("abcde")
    assert rest["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}
    with pytest.raises(StatusError, match="400"):
        wire.list_page(storage, every, {"continue": token, "resourceVersion": "1"})
    storage.compact()
    with pytest.raises(StatusError, match="410"):
        wire.list_page(storage, every, {"continue": token})
    with pytest.raises(StatusError, match="400"):
        wire.list_page(storage, every, {"continue": "rubbish"})


def test_a_kubeconfig_is_readable(tmp_path: Path) -> None:
    authority = Authority.create("super-cluster")
    leaf = authority.issue("reader")
    access = parse(wire.kubeconfig("https://127.0.0.1:1", authority.cert_pem, leaf, token="t"), tmp_path)
    assert (access.ca_pem, access.certificate_pem, access.key_pem, access.token) == (
        authority.cert_pem,
        leaf.cert_pem,
        leaf.key_pem,
        "t",
    )
