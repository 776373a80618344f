# SPDX-License-Identifier: Apache-2.0
"""The shipped definitions of VirtualClusters on a real apiserver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.k8s.ring import virtual_clusters
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.processes import RingError, wait_for
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
# What the operator adds.
_OWN_SPEC = {
    "clusterVersionName": "v1.34",
    "class": "small",
    "exposure": {"type": "LoadBalancer", "hostName": "acme.example", "loadBalancerClass": "example.com/vip"},
    "sleep": {
        "schedules": [{"sleep": "0 20 * * 1-5", "wake": "0 7 * * MON-FRI", "timeZone": "Europe/Berlin"}]
    },
    "restoreFrom": {"backup": "before-move"},
    "volumes": "Retain",
}
_OCTETS = "255.255.255.254"
_NAME_253 = ".".join(["a" * 63] * 3 + ["a" * 61])
# A field's place below spec, values at its limits, and values beyond them.
_LIMITS: list[tuple[str, list[Any], list[Any]]] = [
    (
        "clusterDomain",
        ["", "a", "a.b-c.d", _NAME_253],
        ["A", "a..b", ".a", "-a", "a_b", f"{_NAME_253}b", "a" * 64],
    ),
    ("clusterVersionName", ["", "v1.34", "v" * 253], ["v" * 254, 7]),
    ("pkiExpireDays", [1, 3650], [0, 3651, -1, "365", 1.5]),
    (
        "serviceCidr",
        [
            "",
            *("10.0.0.0/12", "10.32.0.0/28", f"{_OCTETS}/28", "fd00::/108", "fd00:10:96::/112", "::/124"),
            *("10.32.0.0/24,fd00::/112", "fd00::/112,10.32.0.0/24"),
        ],
        [
            *("10.0.0.0", "10.0.0.0/11", "10.0.0.0/29", "10.0.0.0/024", "10.0.0.256/24", "10.0.0/24", "a/24"),
            *("fd00::/107", "fd00::/125", "fd00::/64", "10.0.0.0/24,10.1.0.0/24", "fd00::/112,fd01::/112"),
            *("10.0.0.0/24,", "10.0.0.0/24\n", "10.0.0.0/24, fd00::/112", ["10.0.0.0/24"]),
        ],
    ),
    ("transparentMetaPrefixes", [[], ["p"] * 64, ["p" * 317]], [["p"] * 65, ["p" * 318], [""], "a", [1]]),
    ("opaqueMetaPrefixes", [[], ["p"] * 64, ["p" * 317]], [["p"] * 65, ["p" * 318], [""], "a", [1]]),
    ("class", ["", "a", "a-1", "a" * 63], ["A", "a.b", "-a", "a-", "a" * 64, 1]),
    ("exposure", [{}, {"type": "ClusterIP"}, {"type": "NodePort", "hostName": ""}], ["NodePort", [], 1]),
    ("exposure.type", ["ClusterIP", "NodePort", "LoadBalancer"], ["", "clusterIP", "ExternalName", 1]),
    (
        "exposure.hostName",
        ["", "acme.example", _NAME_253],
        ["*.acme.example", "a:6443", "https://a", "a" * 64],
    ),
    ("exposure.loadBalancerClass", [""], ["vip"]),
    ("sleep", [{}, {"schedules": []}], ["0 20 * * *", []]),
    ("sleep.schedules", [[{"sleep": "0 0 * * *"}] * 16], [[{"sleep": "0 0 * * *"}] * 17, [{}], ["a"]]),
    (
        "sleep.schedules.0.sleep",
        ["* * * * *", "*/5 0-23 1,15 JAN-DEC SUN", f"{'1,' * 123}1 * * * *"],
        [
            "",
            "* * * *",
            "* * * * * *",
            " * * * * *",
            "* * * * *\n",
            "@daily",
            "0 20 * * ;",
            f"{'1,' * 124}1 * * * *",
        ],
    ),
    ("sleep.schedules.0.wake", ["", "0 7 * * 1-5"], ["* * * *", "tomorrow", 7]),
    (
        "sleep.schedules.0.timeZone",
        ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+1", "z" * 63],
        ["", "/etc/passwd", "../UTC", "Europe/", "a/b/c/d", "z" * 64, "+01:00"],
    ),
    ("restoreFrom", [], [{}, "before"]),
    ("restoreFrom.backup", ["a", "before-1.2", "b" * 63], ["", "-a", "a_b", "a/b", "a..b", "b" * 64]),
    (
        "import",
        [{"secretName": "a"}, {"secretName": "a.b", "key": "super-admin.conf"}],
        [{}, {"key": "a"}, "a"],
    ),
    ("import.secretName", ["a", "a" * 253], ["", "A", "a/b", "a" * 254]),
    ("import.key", ["", "k" * 253], ["a/b", "k" * 254]),
    ("volumes", ["Delete", "Retain"], ["", "delete", "Keep", 1]),
]
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


def test_every_field_of_the_operator_is_kept(installed: tuple[KubernetesApi, str], one: str) -> None:
    api, _ = installed
    made = api.create(
        virtual_clusters.path("default") + "?fieldValidation=Strict", manifest("one", _OWN_SPEC)
    )
    assert made["spec"] == _OWN_SPEC


def _with(place: str, value: Any) -> JsonObject:
    """The least spec, with this value at a place below it; what the place needs besides is there too."""
    *parents, last = place.split(".")
    for each in reversed([*parents, last]):
        value = [value] if each.isdigit() else {each: value}
    if place.startswith("sleep.schedules.0.") and last != "sleep":
        value["sleep"]["schedules"][0]["sleep"] = "0 20 * * *"
    if place == "import.key":
        value["import"]["secretName"] = "a"
    return {"clusterVersionName": "cv", **value}


@pytest.mark.parametrize(("place", "good", "bad"), _LIMITS, ids=[each[0] for each in _LIMITS])
def test_each_field_at_its_limits_and_beyond(
    installed: tuple[KubernetesApi, str], place: str, good: list[Any], bad: list[Any]
) -> None:
    """A refusal names the field; what is refused and what is not are the two lists, whole."""
    api, _ = installed
    dry = virtual_clusters.path("default") + "?dryRun=All&fieldValidation=Strict"
    refused = {}
    for value in [*good, *bad]:
        try:
            api.create(dry, manifest("one", _with(place, value)))
        except RingError as error:
            refused[json.dumps(value)] = str(error)
    assert list(refused) == [json.dumps(value) for value in bad]
    at = "spec." + place.replace(".0", "[0]")
    assert [text for text in refused.values() if ": 422 " not in text or at not in text] == []


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        ("a", True),
        ("n" * 47, True),
        ("1-a", True),
        ("n" * 48, False),
        ("a.b", False),
        ("A", False),
        ("a-", False),
    ],
)
def test_names_that_leave_room_for_the_key(
    installed: tuple[KubernetesApi, str], name: str, is_good: bool
) -> None:
    api, _ = installed
    dry = virtual_clusters.path("default") + "?dryRun=All"
    if is_good:
        api.create(dry, manifest(name))
    else:
        with pytest.raises(RingError, match=r": 422 .*name"):
            api.create(dry, manifest(name))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"exposure": {"type": "NodePort", "loadBalancerClass": "vip"}}, "set type: LoadBalancer"),
        ({"import": {"secretName": "a"}, "restoreFrom": {"backup": "b"}}, "remove them, or import"),
        ({"import": {"secretName": "a"}, "exposure": {"type": "NodePort"}}, "remove them, or import"),
        ({"import": {"secretName": "a"}, "sleep": {"schedules": []}}, "remove them, or import"),
    ],
)
def test_fields_that_exclude_each_other(
    installed: tuple[KubernetesApi, str], spec: JsonObject, words: str
) -> None:
    api, _ = installed
    with pytest.raises(RingError, match=f": 422 .*{words}"):
        api.create(
            virtual_clusters.path("default") + "?dryRun=All",
            manifest("one", {"clusterVersionName": "cv", **spec}),
        )


@pytest.mark.parametrize(
    ("before", "change", "words"),
    [
        ({}, {"serviceCidr": "10.33.0.0/24"}, "serviceCidr: .*cannot be changed"),
        ({"serviceCidr": "10.33.0.0/24"}, {"serviceCidr": None}, "serviceCidr: .*cannot be changed"),
        ({}, {"serviceCidr": "10.32.0.0/24"}, ""),
        ({"serviceCidr": ""}, {"serviceCidr": None}, ""),
        ({}, {"clusterDomain": "acme.example"}, "clusterDomain: .*cannot be changed"),
        (
            {"clusterDomain": "acme.example"},
            {"clusterDomain": "acme.test"},
            "clusterDomain: .*cannot be changed",
        ),
        ({}, {"clusterDomain": "cluster.local"}, ""),
        ({}, {"import": {"secretName": "a"}}, "import cannot be set or removed"),
        ({"import": {"secretName": "a"}}, {"import": None}, "import cannot be set or removed"),
        ({"import": {"secretName": "a"}}, {"import": {"secretName": "b"}}, ""),
        ({}, {"restoreFrom": {"backup": "a"}}, "vcnode.io/restore-requested"),
        ({"restoreFrom": {"backup": "a"}}, {"restoreFrom": {"backup": "b"}}, "vcnode.io/restore-requested"),
        ({"restoreFrom": {"backup": "a"}}, {"restoreFrom": None}, ""),
        ({}, {"clusterVersionName": "v1.35", "class": "big", "volumes": "Retain", "pkiExpireDays": 1}, ""),
    ],
)
def test_what_cannot_be_changed_later(
    installed: tuple[KubernetesApi, str], one: str, before: JsonObject, change: JsonObject, words: str
) -> None:
    api, _ = installed
    api.create(virtual_clusters.path("default"), manifest("one", {"clusterVersionName": "cv", **before}))
    if words:
        with pytest.raises(RingError, match=f": 422 .*{words}"):
            api.patch(one, {"spec": change})
    else:
        api.patch(one, {"spec": change})


def test_objects_of_before_can_still_be_changed(installed: tuple[KubernetesApi, str]) -> None:
    """Their refused fields stay as they are, while finalizers, status and other fields are written."""
    api, file = installed
    path = f"{virtual_clusters.CRDS}/{virtual_clusters.NAME}"
    shipped = api.get(path)["spec"]
    loose = json.loads(json.dumps(shipped))
    loose["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    api.patch(path, {"spec": {"versions": loose["versions"]}})
    name = f"{'n' * 60}.dot"
    bad = {
        "clusterVersionName": "",
        "serviceCidr": "no",
        "pkiExpireDays": 0,
        "clusterDomain": "No",
        "class": "No",
    }
    one = virtual_clusters.path("default", name)
    try:
        api.create(virtual_clusters.path("default"), manifest(name, bad))
        api.patch(path, {"spec": {"versions": shipped["versions"]}})
        wait_for("the rules hold", lambda: not _is_taken(api, bad), timeout_s=30)
        api.patch(one, {"metadata": {"finalizers": ["vcnode.io/vc-operator"], "annotations": {"a": "b"}}})
        api.patch(one, {"spec": {"class": "small"}})
        api.patch(f"{one}/status" if file == _OWN_STATUS else one, {"status": {"phase": "Running"}})
        with pytest.raises(RingError, match=r": 422 .*spec.clusterDomain"):
            api.patch(one, {"spec": {"clusterDomain": "Nor"}})
        assert api.get(one)["spec"] == {**bad, "class": "small"}
    finally:
        api.patch(path, {"spec": {"versions": shipped["versions"]}})
        api.patch(one, {"metadata": {"finalizers": None}})
        api.delete(one)


def _is_taken(api: KubernetesApi, spec: JsonObject) -> bool:
    try:
        api.create(virtual_clusters.path("default") + "?dryRun=All", manifest("taken", spec))
    except RingError:
        return False
    return True


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
    status = {
        **_STATUS,
        "kubernetesVersion": "v1.34.4",
        "endpoint": "https://acme.example:6443",
        "conditions": [
            {"status": "True", "reason": "ClusterCreating"},
            {"type": "Ready", "status": "True", "message": "all is well"},
            {"type": "Sleeping", "status": "False"},
        ],
    }
    api.create(virtual_clusters.path("default"), manifest("one", {**_SPEC, "class": "small"}, status))
    if file == _OWN_STATUS:
        api.patch(f"{one}/status", {"status": status})
    head, row = acme.kubectl("get", "vc", "-o", "wide").check().text.splitlines()
    assert " ".join(head.split()) == (
        "NAME PHASE READY VERSION CLASS CLUSTERVERSION SLEEPING ENDPOINT CLUSTERNAMESPACE MESSAGE AGE"
    )
    assert row.split()[:-1] == [
        *("one", "Running", "True", "v1.34.4", "small", "cv-1-34", "False"),
        *("https://acme.example:6443", "tenants-70b001-acme", "all", "is", "well"),
    ]
