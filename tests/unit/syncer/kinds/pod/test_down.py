# SPDX-License-Identifier: Apache-2.0
"""New super pods: what passes as it is, and what does not."""

import pytest

from syncer.core.objects import Object
from syncer.core.plan import Create
from syncer.kinds.pod import policy
from tests.unit.syncer.kinds.pod.pods import API_ADDRESS, created, plan, pod

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
        {"resources": {"limits": {"cpu": "1", "example.com/gpu": "1"}}},
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
    assert not spec.keys() & created(pod(spec))["spec"].keys()


def test_the_api_server_is_an_alias_beside_the_pods_own() -> None:
    own = {"ip": "192.0.2.5", "hostnames": ["a.example.com"]}
    assert created(pod({"hostAliases": [own]}))["spec"]["hostAliases"] == [own, ALIAS]


def test_a_policy_may_force_the_runtime_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "forced_runtime_class", lambda *_: "kata")
    assert created(pod({"runtimeClassName": "runc"}))["spec"]["runtimeClassName"] == "kata"


def test_a_policy_may_let_the_tenant_choose_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "refusals", lambda *_: ())
    found = plan(pod({"nodeName": "n1"})).actions
    assert isinstance(found[0], Create)
    assert found[0].body["spec"]["nodeName"] == "n1"
