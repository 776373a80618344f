# SPDX-License-Identifier: Apache-2.0
"""The shipped definitions of VirtualClusters on a real apiserver."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from tests.k8s.ring import virtual_clusters
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.processes import RingError
from tests.k8s.ring.tenants import RingTenant
from tests.k8s.ring.virtual_clusters import manifest

_OWN_STATUS, _VC_MANAGER = "virtualclusters.yaml", "virtualclusters-vc-manager.yaml"

# Every field that upstream's types have, and some that they have not.
_SPEC = {
    "clusterDomain": "acme.example",
    "clusterVersionName": "cv-1-34",
    "pkiExpireDays": 365,
    "serviceCidr": "10.32.0.0/16",
    "transparentMetaPrefixes": ["example.com/"],
    "opaqueMetaPrefixes": ["tenancy.x-k8s.io"],
    "addedLater": {"deep": [1, {"and": "deeper"}]},
}
_STATUS = {
    "phase": "Running",
    "clusterNamespace": "tenants-70b001-acme",
    "message": "tenant control plane is running",
    "reason": "TenantControlPlaneRunning",
    "conditions": [
        # As vc-manager writes it: the condition's status stays empty.
        {"status": "", "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "ClusterCreating"},
        {"status": "True", "message": "m", "type": "AddedLater"},
    ],
    "addedLater": "kept",
}


@pytest.fixture(scope="module", params=[_OWN_STATUS, _VC_MANAGER])
def installed(request: pytest.FixtureRequest, acme: RingTenant) -> Iterator[tuple[KubernetesApi, str]]:
    """An apiserver that serves nothing else, with one of the definitions."""
    api: KubernetesApi = acme.api
    virtual_clusters.install(api, request.param)
    try:
        yield api, request.param
    finally:
        virtual_clusters.uninstall(api)


@pytest.fixture
def one(installed: tuple[KubernetesApi, str]) -> Iterator[str]:
    yield virtual_clusters.path("default", "one")
    installed[0].delete(virtual_clusters.path("default", "one"))


def test_the_definition_is_structural_and_accepted(installed: tuple[KubernetesApi, str]) -> None:
    api, file = installed
    definition = api.get(f"{virtual_clusters.CRDS}/{virtual_clusters.NAME}")
    conditions = {each["type"]: each["status"] for each in definition["status"]["conditions"]}
    assert (conditions["Established"], conditions["NamesAccepted"]) == ("True", "True")
    assert "NonStructuralSchema" not in conditions
    resources = {each["name"]: each for each in api.get(f"/apis/{virtual_clusters.GROUP}")["resources"]}
    more = {"virtualclusters/status"} if file == _OWN_STATUS else set()
    assert resources.keys() == {"virtualclusters"} | more
    plural = resources["virtualclusters"]
    assert (plural["kind"], plural["shortNames"], plural["namespaced"]) == ("VirtualCluster", ["vc"], True)


def test_every_field_of_upstream_is_kept(installed: tuple[KubernetesApi, str], one: str) -> None:
    api, file = installed
    made = api.create(
        virtual_clusters.path("default") + "?fieldValidation=Strict", manifest("one", _SPEC, _STATUS)
    )
    assert made["spec"] == _SPEC
    if file == _OWN_STATUS:
        assert "status" not in made
        made = api.patch(f"{one}/status", {"status": _STATUS})
    assert made["status"] == _STATUS
    assert api.get(one)["spec"] == _SPEC


def test_a_go_client_may_write_empty_fields(installed: tuple[KubernetesApi, str], one: str) -> None:
    """Upstream's types have no omitempty on the phase, the message and the reason."""
    api, _ = installed
    empty = {"phase": "", "message": "", "reason": ""}
    api.create(virtual_clusters.path("default"), manifest("one", {"clusterVersionName": ""}, empty))


def test_who_creates_one_does_not_choose_its_key(installed: tuple[KubernetesApi, str], one: str) -> None:
    """A status by an ordinary update counts only where vc-manager's definition is applied."""
    api, file = installed
    api.create(virtual_clusters.path("default"), manifest("one"))
    changed = api.patch(one, {"status": _STATUS})
    assert changed.get("status") == (None if file == _OWN_STATUS else _STATUS)


@pytest.mark.parametrize(
    ("spec", "status", "words"),
    [
        ({}, None, "spec.clusterVersionName: Required value"),
        ({"clusterVersionName": 7}, None, "spec.clusterVersionName"),
        ({"clusterVersionName": "cv", "clusterDomain": ["a"]}, None, "spec.clusterDomain"),
        ({"clusterVersionName": "cv", "pkiExpireDays": "365"}, None, "spec.pkiExpireDays"),
        ({"clusterVersionName": "cv", "opaqueMetaPrefixes": "a"}, None, "spec.opaqueMetaPrefixes"),
        (None, {"phase": 1}, "status.phase"),
        (None, {"phase": "Running", "clusterNamespace": {}}, "status.clusterNamespace"),
        (None, {"message": "no phase"}, "status.phase: Required value"),
    ],
)
def test_bad_virtual_clusters(
    installed: tuple[KubernetesApi, str], one: str, spec: Any, status: JsonObject | None, words: str
) -> None:
    api, file = installed
    is_own = status is not None and file == _OWN_STATUS
    if is_own:
        api.create(virtual_clusters.path("default"), manifest("one"))
    write = (
        partial(api.patch, f"{one}/status", {"status": status})
        if is_own
        else partial(api.create, virtual_clusters.path("default"), manifest("one", spec, status))
    )
    with pytest.raises(RingError, match=f": 422 .*{words}"):
        write()


def test_kubectl_columns(installed: tuple[KubernetesApi, str], one: str, acme: RingTenant) -> None:
    api, file = installed
    api.create(virtual_clusters.path("default"), manifest("one", _SPEC, _STATUS))
    if file == _OWN_STATUS:
        api.patch(f"{one}/status", {"status": _STATUS})
    head, row = acme.kubectl("get", "vc", "-o", "wide").check().text.splitlines()
    assert head.split() == ["NAME", "AGE", "PHASE", "CLUSTERVERSION", "CLUSTERNAMESPACE"]
    assert [row.split()[index] for index in (0, 2, 3, 4)] == [
        "one",
        "Running",
        "cv-1-34",
        "tenants-70b001-acme",
    ]


def test_the_two_definitions_differ_in_the_status_alone() -> None:
    shipped, upstream = (
        yaml.safe_load((virtual_clusters.SHIPPED / name).read_text()) for name in (_OWN_STATUS, _VC_MANAGER)
    )
    assert shipped["spec"]["versions"][0].pop("subresources") == {"status": {}}
    assert shipped == upstream
