# SPDX-License-Identifier: Apache-2.0
"""What the contract of writes cannot ask of a real API server that is alone."""

from typing import Any

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, SERVICES, Resource
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.patches import MERGE, STRATEGIC
from devkit.kube.storage import Object, Selection, StatusError, Storage
from devkit.kube.token_requests import SERVICE_ACCOUNTS, claims_of

THINGS = Resource("x.example", "v1", "things")
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", is_namespaced=False)
NOW_S = 1_700_000_000.0


def cluster(**settings: Any) -> Cluster:
    return Cluster(Storage(), ClusterSettings(**settings), clock=lambda: NOW_S)


def names(found: Cluster, resource: Resource, namespace: str = "") -> list[str]:
    return [each["metadata"]["name"] for each in found.storage.select(Selection(resource, namespace))]


def made(found: Cluster, resource: Resource, name: str, **fields: Any) -> Object:
    namespace = {"namespace": "default"} if resource.is_namespaced else {}
    return found.create(resource, {"metadata": {"name": name, **namespace}, **fields})


def bound(found: Cluster, name: str) -> Object:
    made(found, PODS, name, spec={"containers": [{"name": "a", "image": "b"}]})
    found.act(PODS, "default", name, "binding", {"target": {"name": "n1"}})
    return found.storage.get(PODS, "default", name)


def test_a_cluster_begins_with_its_own_objects() -> None:
    found = cluster()
    own = ["default", "kube-node-lease", "kube-public", "kube-system"]
    assert names(found, NAMESPACES) == own
    assert names(found, SERVICE_ACCOUNTS) == ["default"] * 4
    assert names(found, CONFIG_MAPS, "default") == ["kube-root-ca.crt"]
    assert found.storage.get(SERVICES, "default", "kubernetes")["spec"]["clusterIP"] == "10.96.0.1"
    assert names(cluster(has_controllers=False), CONFIG_MAPS) == []


def test_a_deleted_namespace_goes_with_its_contents() -> None:
    found = cluster()
    made(found, NAMESPACES, "a")
    found.create(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "a"}})
    since = found.storage.revision
    assert found.delete(NAMESPACES, "", "a")["status"] == {"phase": "Terminating"}
    assert [kind for kind, _ in found.storage.events(Selection(NAMESPACES), since)] == ["MODIFIED", "DELETED"]
    assert names(found, CONFIG_MAPS, "a") == names(found, SERVICE_ACCOUNTS, "a") == []
    assert not found.storage.has(NAMESPACES, "", "a")


def test_a_namespace_waits_for_its_pods() -> None:
    found = cluster()
    pod = bound(found, "p")
    found.delete(NAMESPACES, "", "default")
    assert found.storage.has(NAMESPACES, "", "default")
    left = found.storage.get(PODS, "default", "p")["metadata"]
    assert (left["deletionGracePeriodSeconds"], left["uid"]) == (30, pod["metadata"]["uid"])
    with pytest.raises(StatusError, match="403 Forbidden"):
        made(found, CONFIG_MAPS, "late")
    found.delete(PODS, "default", "p", {"gracePeriodSeconds": 0})
    assert not found.storage.has(NAMESPACES, "", "default")


def test_a_namespace_without_controllers_stays() -> None:
    found = cluster(has_controllers=False)
    found.delete(NAMESPACES, "", "default")
    assert found.storage.get(NAMESPACES, "", "default")["status"]["phase"] == "Terminating"


def test_custom_resources_count_their_changes() -> None:
    found = cluster(with_status=frozenset({"things"}))
    assert "status" not in made(found, THINGS, "a", spec={"x": 1}, status={"y": 1})
    changed = found.patch(THINGS, "default", "a", "", MERGE, b'{"spec": {"x": 2}, "status": {"y": 2}}')
    assert (changed["metadata"]["generation"], changed.get("status")) == (2, None)
    stated = found.patch(THINGS, "default", "a", "status", MERGE, b'{"spec": {"x": 3}, "status": {"y": 3}}')
    assert (stated["metadata"]["generation"], stated["spec"], stated["status"]) == (2, {"x": 2}, {"y": 3})
    with pytest.raises(StatusError, match="415"):
        found.patch(THINGS, "default", "a", "", STRATEGIC, b"{}")


def test_a_definition_gives_its_resources_a_status() -> None:
    found = cluster()
    version = {"name": "v1", "subresources": {"status": {}}}
    metadata = {"name": "things.x.example"}
    defined = found.create(DEFINITIONS, {"metadata": metadata, "spec": {"versions": [version]}})
    assert [each["type"] for each in defined["status"]["conditions"]] == ["NamesAccepted", "Established"]
    assert "status" not in made(found, THINGS, "a", spec={"x": 1}, status={"y": 1})
    stated = found.patch(THINGS, "default", "a", "status", MERGE, b'{"status": {"y": 3}}')
    assert (stated["spec"], stated["status"]) == ({"x": 1}, {"y": 3})


def test_a_definition_has_the_scope_of_its_resources() -> None:
    found = cluster()
    assert found.scoped(THINGS) == THINGS
    found.create(DEFINITIONS, {"metadata": {"name": "things.x.example"}, "spec": {"scope": "Cluster"}})
    assert found.scoped(THINGS) == Resource("x.example", "v1", "things", is_namespaced=False)


def test_addresses_of_deleted_services_are_free() -> None:
    found = cluster(service_cidr="10.0.0.0/29")
    for number in range(20):
        spec = {"ports": [{"port": 80}], "type": "LoadBalancer"}
        made(found, SERVICES, f"s{number}", spec=spec)
        found.delete(SERVICES, "default", f"s{number}")
    service = made(found, SERVICES, "a", spec={"ports": [{"port": 80}], "type": "NodePort"})
    port = service["spec"]["ports"][0]["nodePort"]
    spec = service["spec"] | {"type": "ExternalName", "externalName": "x"}
    found.update(SERVICES, service | {"spec": spec})
    wanted = {"ports": [{"port": 1, "nodePort": port}], "type": "NodePort"}
    assert made(found, SERVICES, "b", spec=wanted)["spec"]["ports"][0]["nodePort"] == port


def test_a_token_names_its_account_and_pod() -> None:
    found = cluster()
    pod = bound(found, "p")
    reference = {"kind": "Pod", "name": "p"}
    request = {"spec": {"audiences": ["x"], "expirationSeconds": 600, "boundObjectRef": reference}}
    answer = found.act(SERVICE_ACCOUNTS, "default", "default", "token", request)
    assert answer["status"]["expirationTimestamp"] == "2023-11-14T22:23:20Z"
    account = found.storage.get(SERVICE_ACCOUNTS, "default", "default")
    assert claims_of(answer["status"]["token"]) == {
        "aud": ["x"],
        "exp": 1_700_000_600,
        "iat": 1_700_000_000,
        "iss": "https://kubernetes.default.svc",
        "kubernetes.io": {
            "namespace": "default",
            "node": {"name": "n1"},
            "pod": {"name": "p", "uid": pod["metadata"]["uid"]},
            "serviceaccount": {"name": "default", "uid": account["metadata"]["uid"]},
        },
        "nbf": 1_700_000_000,
        "sub": "system:serviceaccount:default:default",
    }


def test_without_settings_objects_are_stored_as_sent() -> None:
    found = Cluster(Storage())
    pod = {"metadata": {"name": "p", "namespace": "none"}, "spec": {"x": 1}, "status": {"y": 1}}
    stored = found.create(PODS, pod)
    assert (stored["spec"], stored["status"], len(stored["metadata"])) == ({"x": 1}, {"y": 1}, 4)
    found.patch(PODS, "none", "p", "", MERGE, b'{"spec": {"x": 2}, "status": {"y": 2}}')
    stored = found.patch(PODS, "none", "p", "status", MERGE, b'{"spec": {"x": 3}, "status": {"y": 3}}')
    assert (stored["spec"], stored["status"]) == ({"x": 2}, {"y": 3})
    found.delete(PODS, "none", "p")
    assert found.storage.contents("none") == []
