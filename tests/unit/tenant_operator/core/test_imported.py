# SPDX-License-Identifier: Apache-2.0
"""A control plane that others made: adopted, followed when it changes, refused with what to change."""

from tenant_operator.core.conditions import ConditionType
from tenant_operator.core.observed import ProbeResult
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.test_defaults import DEFAULTS
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster

SOURCE = {"digest": "d1", "server": "https://10.96.7.7:6443", "version": "v1.33.1", "key": "config"}
CLIENT = {"certificate": "CERT", "authority": "CA", "certificatePlace": "Secret tenants/acme-certs"}
KEY = "tenants-eae942-acme"
COPY = Ref("Secret", KEY, "admin-kubeconfig")


def importing() -> Object:
    cluster = virtual_cluster()
    cluster["spec"]["import"] = {"secretName": "vc-acme"}
    return cluster


def world(**facts: str) -> FakeWorld:
    cluster = importing()
    made = FakeWorld(cluster, settings=DEFAULTS, source=ProbeResult(True, 0.0, "it answers", SOURCE | facts))
    made.run()
    return made


def condition(made: FakeWorld, type_: ConditionType) -> tuple[str, str, str]:
    found = {each["type"]: each for each in made.cluster["status"]["conditions"]}[type_]
    return found["status"], found["reason"], found["message"]


def names_of(made: FakeWorld) -> list[str]:
    return sorted(str(ref) for ref in made.objects)


def test_it_becomes_ready_without_a_workload() -> None:
    made = world(**CLIENT)
    assert names_of(made) == [
        f"ConfigMap {KEY}/defaults-inventory",
        f"Namespace {KEY}",
        f"Secret {KEY}/admin-kubeconfig",
        f"Secret {KEY}/apiserver-ca",
        f"Secret {KEY}/root-ca",
    ]
    status = made.cluster["status"]
    assert (status["phase"], status["clusterNamespace"]) == ("Running", KEY)
    assert (status["endpoint"], status["kubernetesVersion"]) == ("https://10.96.7.7:6443", "1.33.1")
    assert condition(made, ConditionType.READY)[0] == "True"
    assert condition(made, ConditionType.NODES_SERVING) == (
        "True",
        "ClientRegistered",
        "registered from Secret tenants/acme-certs",
    )


def test_settled_it_is_not_written() -> None:
    made = world(**CLIENT)
    assert [made.plan().steps for _ in range(10)] == [()] * 10
    assert made.plan().check_again_s == 600.0


def test_all_objects_have_their_owner() -> None:
    made = world(**CLIENT)
    uid = made.cluster["metadata"]["uid"]
    owners = {value["metadata"]["labels"]["tenancy.x-k8s.io/vcuid"] for value in made.objects.values()}
    assert owners == {uid}


def test_a_renewed_kubeconfig_is_copied_again() -> None:
    made = world(**CLIENT)
    before = made.objects[COPY]["metadata"]["resourceVersion"]
    made.source = ProbeResult(True, 0.0, "it answers", SOURCE | CLIENT | {"digest": "d2"})
    made.now_s += 601.0
    made.run()
    assert made.objects[COPY]["metadata"]["annotations"] == {"vcnode.io/spec-digest": "d2"}
    assert made.objects[COPY]["metadata"]["resourceVersion"] != before


def test_an_unknown_kubelet_client_is_asked_for() -> None:
    made = world(kubeletClient="Run: kubectl create secret")
    assert f"Secret {KEY}/root-ca" not in names_of(made)
    unknown = ("False", "KubeletClientUnknown", "Run: kubectl create secret")
    assert condition(made, ConditionType.NODES_SERVING) == unknown
    assert condition(made, ConditionType.READY) == unknown
    assert made.cluster["status"]["phase"] == "Running"


def test_what_is_refused_writes_nothing() -> None:
    cluster = importing()
    refused = ProbeResult(False, 0.0, "field: why; remedy", {"reason": "LeadsToSuperCluster"})
    made = FakeWorld(cluster, settings=DEFAULTS, source=refused)
    made.run()
    assert made.objects == {}
    assert made.cluster["status"]["phase"] == "Pending"
    assert condition(made, ConditionType.READY) == ("False", "LeadsToSuperCluster", "field: why; remedy")


def test_a_tenant_that_is_away_keeps_its_registration() -> None:
    made = world(**CLIENT)
    before = dict(made.objects)
    made.source = ProbeResult(False, 0.0, "no answer within 5 s")
    made.now_s += 601.0
    made.run()
    assert made.objects == before
    assert made.cluster["status"]["phase"] == "Running"
    assert condition(made, ConditionType.READY) == ("False", "ImportNotReachable", "no answer within 5 s")


def test_a_restart_changes_no_condition_before_it_asked() -> None:
    made = world(**CLIENT)
    made.probes.clear()
    plan = made.plan()
    assert (plan.steps, plan.findings, plan.phase) == ((), (), None)


def test_what_is_asked_of_others_is_refused_in_a_condition() -> None:
    made = world(**CLIENT)
    made.cluster["metadata"]["annotations"] = {"vcnode.io/sleep-requested-at": "2027-01-15T07:00:00Z"}
    made.run()
    status, reason, message = condition(made, ConditionType.UP_TO_DATE)
    assert (status, reason) == ("False", "RequestInvalid")
    assert message.startswith("metadata.annotations[vcnode.io/sleep-requested-at]: ")
    assert condition(made, ConditionType.READY)[0] == "True"
    made.cluster["metadata"]["annotations"] = {}
    made.run()
    assert condition(made, ConditionType.UP_TO_DATE)[:2] == ("True", "Imported")
