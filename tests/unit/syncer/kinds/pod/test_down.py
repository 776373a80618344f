# SPDX-License-Identifier: Apache-2.0
"""New super pods: what passes as it is, and what does not."""

from dataclasses import replace

import pytest

from syncer.core.objects import Object
from syncer.core.plan import Create
from syncer.policy.sync_policy import DEFAULT
from tests.unit.syncer.kinds.pod.pods import API_ADDRESS, OPEN_POLICY, created, plan, pod, view

ALIAS = {"ip": API_ADDRESS, "hostnames": ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]}


@pytest.mark.parametrize(
    "spec",
    [
        {"initContainers": [{"name": "s", "restartPolicy": "Always", "image": "s:1"}]},
        {"hostUsers": False},
        {"os": {"name": "linux"}},
        {"schedulingGates": [{"name": "example.com/g"}]},
        {"imagePullSecrets": [{"name": "own"}], "serviceAccountName": "robot"},
        {"hostname": "h1", "setHostnameAsFQDN": False},
        {"runtimeClassName": "kata", "priorityClassName": "high", "schedulerName": "s"},
        {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"}},
        {"readinessGates": [{"conditionType": "example.com/r"}]},
        {"securityContext": {"supplementalGroupsPolicy": "Strict", "appArmorProfile": {"type": "Localhost"}}},
        {"terminationGracePeriodSeconds": 0, "activeDeadlineSeconds": 9, "restartPolicy": "Never"},
        {"someNewField": {"a": [1]}},
    ],
)
def test_fields_that_pass(spec: Object) -> None:
    found = created(pod(spec))["spec"]
    for each in found.get("initContainers") or ():
        del each["env"]
    assert {name: found[name] for name in spec} == spec


@pytest.mark.parametrize(
    "container",
    [
        {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]},
        {"livenessProbe": {"grpc": {"port": 8080}}},
        {"ports": [{"containerPort": 80, "hostPort": 80}]},
        {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
        {"lifecycle": {"stopSignal": "SIGUSR1"}},
        {"someNewField": {"a": [1]}},
    ],
)
def test_fields_of_containers_that_pass(container: Object) -> None:
    (found,) = created(pod({"containers": [{"name": "c", "image": "app:1", **container}]}))["spec"][
        "containers"
    ]
    del found["env"]
    assert found == {"name": "c", "image": "app:1", **container}


def test_fields_that_do_not_pass() -> None:
    """The super cluster's admission computes them, or they have no meaning there."""
    spec = {
        "priority": 7,
        "preemptionPolicy": "Never",
        "overhead": {"cpu": "1"},
        "subdomain": "headless",
        "ephemeralContainers": [{"name": "e"}],
    }
    assert not spec.keys() & created(pod({**spec, "runtimeClassName": "kata"}))["spec"].keys()


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        ({"hostNetwork": True}, ["spec.hostNetwork"]),
        ({"hostPID": True, "hostIPC": True}, ["spec.hostPID", "spec.hostIPC"]),
        ({"priorityClassName": "system-cluster-critical"}, ["spec.priorityClassName"]),
        ({"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}, ["spec.volumes[0].hostPath"]),
        ({"nodeName": "n1"}, ["spec.nodeName"]),
        (
            {"volumes": [{"name": "c", "projected": {"sources": [{"podCertificate": {"signerName": "s"}}]}}]},
            ["spec.volumes[0].projected.sources[0].podCertificate"],
        ),
    ],
)
def test_the_default_policy_refuses(spec: Object, paths: list[str]) -> None:
    found = plan(pod(spec), None, view(policy=DEFAULT))
    assert ([each.path for each in found.refusals], found.actions) == (paths, ())


def test_the_api_server_is_an_alias_beside_the_pods_own() -> None:
    own = {"ip": "192.0.2.5", "hostnames": ["a.example.com"]}
    assert created(pod({"hostAliases": [own]}))["spec"]["hostAliases"] == [own, ALIAS]


def test_a_policy_may_force_the_runtime_class() -> None:
    forced = replace(OPEN_POLICY, pods=replace(OPEN_POLICY.pods, runtime_class="kata"))
    assert created(pod(), view(policy=forced))["spec"]["runtimeClassName"] == "kata"
    own = pod({"runtimeClassName": "runc"})
    assert created(own, view(policy=forced))["spec"]["runtimeClassName"] == "runc"


def test_a_policy_may_let_the_tenant_choose_the_node() -> None:
    allowing = replace(OPEN_POLICY, pods=replace(OPEN_POLICY.pods, allow_node_name=True))
    found = plan(pod({"nodeName": "n1"}), None, view(policy=allowing)).actions
    assert isinstance(found[0], Create)
    assert found[0].body["spec"]["nodeName"] == "n1"
