# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, PODS
from syncer.core.objects import SyncedKind
from syncer.core.plan import Bind, Create, Delete, Patch, Side
from syncer.core.requests import request_of

CONFIG_MAP = SyncedKind(CONFIG_MAPS, "ConfigMap")
POD = SyncedKind(PODS, "Pod")


def test_a_creation_is_typed() -> None:
    body = {"metadata": {"name": "a", "namespace": "n"}, "data": {"k": "v"}}
    found = request_of(Create(Side.SUPER, CONFIG_MAP, body))
    assert (found.method, found.path, found.namespace) == ("POST", "/api/v1/namespaces/n/configmaps", "n")
    assert json.loads(found.body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "n"},
        "data": {"k": "v"},
    }


def test_what_is_cluster_scoped_has_no_namespace() -> None:
    found = request_of(Create(Side.SUPER, SyncedKind(NAMESPACES, "Namespace"), {"metadata": {"name": "n"}}))
    assert (found.path, found.namespace) == ("/api/v1/namespaces", "")


@pytest.mark.parametrize(
    ("subresource", "is_strategic", "version", "path", "content_type", "metadata"),
    [
        ("", False, "", "/api/v1/namespaces/n/pods/p", "application/merge-patch+json", {"uid": "u"}),
        (
            "status",
            True,
            "7",
            "/api/v1/namespaces/n/pods/p/status",
            "application/strategic-merge-patch+json",
            {"uid": "u", "resourceVersion": "7"},
        ),
    ],
)
def test_a_patch_is_of_one_uid(
    subresource: str, is_strategic: bool, version: str, path: str, content_type: str, metadata: dict[str, str]
) -> None:
    patch = Patch(
        Side.TENANT,
        POD,
        "n",
        "p",
        "u",
        {"metadata": {"labels": {"a": None}}},
        subresource,
        is_strategic,
        version,
    )
    found = request_of(patch)
    assert (found.method, found.path, found.content_type) == ("PATCH", path, content_type)
    assert json.loads(found.body) == {"metadata": {"labels": {"a": None}, **metadata}}


@pytest.mark.parametrize(("grace_s", "more"), [(None, {}), (0, {"gracePeriodSeconds": 0})])
def test_a_deletion_is_of_one_uid(grace_s: int | None, more: dict[str, int]) -> None:
    found = request_of(Delete(Side.SUPER, POD, "n", "p", "u", grace_s))
    assert (found.method, found.path) == ("DELETE", "/api/v1/namespaces/n/pods/p")
    assert json.loads(found.body) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u"},
        "propagationPolicy": "Background",
        **more,
    }


def test_a_pod_is_bound_by_its_subresource() -> None:
    found = request_of(Bind("n", "p", "u", "node-1"))
    assert (found.method, found.path) == ("POST", "/api/v1/namespaces/n/pods/p/binding")
    assert json.loads(found.body) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
