# SPDX-License-Identifier: Apache-2.0
"""packaging/operator and vc-operator's rights: complete for its steps, watches and probes, and no wider.

That they are enough is what tests/k8s/operator shows, which runs under these roles alone. What the policies
refuse is in tests/k8s/test_operator_policy.py.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import tenant_operator.config
from syncer.policy import quantity
from tenant_operator.edge.caches import OWNED_KINDS
from tenant_operator.election.lease import LEASES
from tenant_operator.model.objects import CLUSTER_VERSIONS, OPERATOR, RESOURCES
from tests import examples

FOLDER = examples.ROOT / "packaging" / "operator"
RBAC, POLICY, DEPLOYMENT = (FOLDER / f"{name}.yaml" for name in ("rbac", "policy", "deployment"))

Right = tuple[str, str, str]


def documents(path: Path, kind: str) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each["kind"] == kind]


def rights(kind: str) -> set[Right]:
    """(group, resource, verb) of the roles of this kind."""
    return {
        (group, resource, verb)
        for role in documents(RBAC, kind)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed() -> Iterator[Right]:
    """What the daemon asks of the whole super cluster."""
    for kind in OWNED_KINDS:
        resource = RESOURCES[kind]
        for verb in ("get", "list", "watch", "create", "patch", "delete"):
            yield resource.group, resource.plural, verb
    # Certificates are replaced at a version.
    yield "", "secrets", "update"
    clusters = RESOURCES["VirtualCluster"]
    for verb in ("get", "list", "watch", "patch"):
        yield clusters.group, clusters.plural, verb
    yield clusters.group, f"{clusters.plural}/status", "patch"
    for verb in ("list", "watch"):
        yield CLUSTER_VERSIONS.group, CLUSTER_VERSIONS.plural, verb
    for verb in ("list", "watch"):
        yield "", "nodes", verb
    # Of backups: their Jobs' pods, and what those print.
    yield "", "pods", "list"
    # Of a control plane on a dead node, at its end.
    yield "", "pods", "delete"
    yield "", "pods/log", "get"


def test_rights_are_what_it_asks_for_and_no_more() -> None:
    assert rights("ClusterRole") == set(needed())
    assert rights("Role") == {(LEASES.group, LEASES.plural, verb) for verb in ("get", "create", "patch")}


def test_only_its_own_lease_can_be_changed() -> None:
    (role,) = documents(RBAC, "Role")
    named = {tuple(rule["verbs"]): rule.get("resourceNames") for rule in role["rules"]}
    assert named == {("create",): None, ("get", "patch"): [OPERATOR]}
    defaults = tenant_operator.config.LeaderElectionConfig()
    assert (defaults.namespace, defaults.name) == (role["metadata"]["namespace"], OPERATOR)


def test_policy_covers_each_kind_that_is_written() -> None:
    covered = {
        (group, resource)
        for policy in documents(POLICY, "ValidatingAdmissionPolicy")
        if any(each["name"] == "is-vc-operator" for each in policy["spec"].get("matchConditions", ()))
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    writes = ("create", "update", "patch", "delete")
    written = {(group, resource) for group, resource, verb in rights("ClusterRole") if verb in writes}
    assert written <= covered


def test_each_policy_is_bound_and_fails_closed() -> None:
    policies = documents(POLICY, "ValidatingAdmissionPolicy")
    bound = {
        each["spec"]["policyName"]: each for each in documents(POLICY, "ValidatingAdmissionPolicyBinding")
    }
    assert [each["metadata"]["name"] for each in policies] == list(bound)
    assert {each["spec"]["failurePolicy"] for each in policies} == {"Fail"}
    assert [each["spec"]["validationActions"] for each in bound.values()] == [["Deny"]] * len(policies)


def test_policies_mean_the_accounts_that_have_the_rights() -> None:
    (account,) = documents(RBAC, "ServiceAccount")
    name, namespace = account["metadata"]["name"], account["metadata"]["namespace"]
    subjects = [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"vcnode:{OPERATOR}s"},
        {"kind": "ServiceAccount", "name": name, "namespace": namespace},
    ]
    for binding in (*documents(RBAC, "ClusterRoleBinding"), *documents(RBAC, "RoleBinding")):
        assert binding["subjects"] == subjects
    expression = (
        f"'vcnode:{OPERATOR}s' in request.userInfo.groups "
        f"|| request.userInfo.username == 'system:serviceaccount:{namespace}:{name}'"
    )
    found = [
        condition["expression"]
        for policy in documents(POLICY, "ValidatingAdmissionPolicy")
        for condition in policy["spec"].get("matchConditions", ())
        if condition["name"] == "is-vc-operator"
    ]
    assert found == [expression] * 3
    (deployment,) = documents(DEPLOYMENT, "Deployment")
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == name


def test_deployment_has_the_example_as_its_file() -> None:
    socket, loopback = "socket: /run/vcnode/vc-operator/status.sock", "address: 127.0.0.1, port: 10552"
    config, _ = documents(DEPLOYMENT, "ConfigMap")
    assert config["data"]["config.yaml"] == examples.shown("vc-operator.yaml").replace(socket, loopback)


def test_policy_reads_the_ranges_of_the_configuration(tmp_path: Path) -> None:
    """An admission policy cannot read YAML in a ConfigMap: they stand there twice."""
    config, ranges = documents(DEPLOYMENT, "ConfigMap")
    file = tmp_path / "config.yaml"
    file.write_text(config["data"]["config.yaml"])
    cluster = tenant_operator.config.load(file).super_cluster
    assert {key: tuple(value.split(",")) for key, value in ranges["data"].items()} == {
        "serviceCidrs": cluster.service_cidrs,
        "podCidrs": cluster.pod_cidrs,
        "nodeCidrs": cluster.node_cidrs,
    }
    (reference,) = [
        each["spec"]["paramRef"]
        for each in documents(POLICY, "ValidatingAdmissionPolicyBinding")
        if "paramRef" in each["spec"]
    ]
    named = {key: ranges["metadata"][key] for key in ("name", "namespace")}
    assert reference == {**named, "parameterNotFoundAction": "Allow"}


def test_replicas_have_a_lease(tmp_path: Path) -> None:
    config, _ = documents(DEPLOYMENT, "ConfigMap")
    file = tmp_path / "config.yaml"
    file.write_text(config["data"]["config.yaml"])
    (deployment,) = documents(DEPLOYMENT, "Deployment")
    assert deployment["spec"]["replicas"] == 2
    assert tenant_operator.config.load(file).leader_election is not None


def test_an_operator_that_does_not_answer_is_started_anew() -> None:
    """One that is merely not ready is not: the super cluster may be away for hours."""
    (deployment,) = documents(DEPLOYMENT, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    address = container["readinessProbe"]["exec"]["command"][-1]
    probe = container["livenessProbe"]
    assert probe["exec"]["command"] == ["vcnode", "status", "--alive", "--address", address]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 60


@pytest.mark.parametrize("name", ["virtualclusters", "clusterversions"])
def test_what_it_needs_before_is_named(name: str) -> None:
    for path in (DEPLOYMENT, FOLDER / "kustomization.yaml"):
        assert f"{name}.yaml" in path.read_text(), path.name


def test_unit_and_pod_have_the_same_limit_of_memory() -> None:
    unit = (examples.ROOT / "systemd" / "vc-operator.service").read_text(encoding="utf-8")
    (limit,) = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("MemoryMax=")]
    (deployment,) = documents(DEPLOYMENT, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert quantity.parse(f"{limit}i") == quantity.parse(container["resources"]["limits"]["memory"])


NAMES_ANOTHER = {
    # ClusterVersions are the super cluster's own, for all who may create VirtualClusters.
    "clusterVersionName": "",
    "exposure.loadBalancerClass": "",
    "import.secretName": "variables.imported['secretName']).check('get')",
    # Of the Secret that `secretName` is.
    "import.key": "variables.imported == variables.wasImported",
    # Of the VirtualCluster that `uid` is.
    "restoreFrom.backup": "variables.restored == variables.wasRestored",
    "restoreFrom.uid": "variables.restored['uid'] : '').check('restore')",
}
"""Fields by which an author names what others made, with what asks whether he may read it."""
OF_ITS_OWN = {
    *("clusterDomain", "pkiExpireDays", "serviceCidr", "class", "exposure.type", "exposure.hostName"),
    *("transparentMetaPrefixes", "opaqueMetaPrefixes", "volumes"),
    *("sleep.schedules.sleep", "sleep.schedules.wake", "sleep.schedules.timeZone"),
}


def fields(schema: Any, at: str = "") -> Iterator[str]:
    """The paths of a schema's values."""
    inner = schema.get("items", schema)
    if "properties" not in inner:
        yield at
    for name, each in inner.get("properties", {}).items():
        yield from fields(each, f"{at}.{name}" if at else name)


def test_what_an_author_names_has_its_rule() -> None:
    """The operator reads it with rights that the author may not have."""
    crd = yaml.safe_load((FOLDER.parent / "crds" / "virtualclusters.yaml").read_text(encoding="utf-8"))
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(fields(spec)) == NAMES_ANOTHER.keys() | OF_ITS_OWN
    (policy,) = (
        each
        for each in documents(POLICY, "ValidatingAdmissionPolicy")
        if each["metadata"]["name"] == "vcnode-virtualclusters"
    )
    asked = " ".join(each["expression"] for each in policy["spec"]["validations"])
    assert [rule for rule in NAMES_ANOTHER.values() if rule not in asked] == []
