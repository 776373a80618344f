# SPDX-License-Identifier: Apache-2.0
"""What tenants' controllers make runs in the super cluster, under the same names in both tenants."""

from __future__ import annotations

from functools import partial

import pytest

from tests.k8s.ring.pods import container
from tests.k8s.syncer import policies
from tests.k8s.syncer.aging import CRON_JOB
from tests.k8s.syncer.cluster import NODES
from tests.k8s.syncer.shops import Shop, deployment, is_ready, object_of, pod_spec, service, template

pytestmark = pytest.mark.timeout(300)


def test_deployment_runs_in_both_tenants(shops: tuple[Shop, Shop]) -> None:
    for shop in shops:
        shop.apply(deployment("web", pod_spec(f"echo page of {shop.tenant.key}", "exec sleep 100000")))
    for shop in shops:
        (pod,) = shop.wait_running("app=web")
        shop.wait_own(
            "the deployment is available",
            lambda own: own.get("deployments", "web")["status"].get("availableReplicas") == 1,
        )
        made = shop.in_super("pods", pod["metadata"]["name"])
        assert made is not None
        assert made["spec"]["nodeName"] == pod["spec"]["nodeName"]
        for field in ("podIP", "podIPs", "startTime", "qosClass"):
            assert pod["status"][field] == made["status"][field]
        assert pod["status"]["containerStatuses"] == made["status"]["containerStatuses"]
    # Neither has the other's namespace: the super cluster has two.
    assert shops[0].super_namespace != shops[1].super_namespace


def test_scale_up_and_down(shops: tuple[Shop, Shop]) -> None:
    one, other = shops
    for shop in shops:
        shop.apply(deployment("web", pod_spec()))
    for shop in shops:
        shop.wait_running("app=web")
    one.kubectl("scale", "deployment/web", "--replicas=4").check()
    one.wait_running("app=web", 4)
    one.kubectl("scale", "deployment/web", "--replicas=1").check()
    one.wait("three pods are gone below", lambda: len(one.super_items("pods")) == 1)
    one.wait_running("app=web", 1)
    # The other tenant's deployment of the same name kept its pod all the while.
    assert [len(other.items("pods")), len(other.super_items("pods"))] == [1, 1]


def test_rolling_update_replaces_pods(shop: Shop) -> None:
    shop.apply(deployment("web", pod_spec("echo one", "exec sleep 100000"), replicas=2))
    before = {pod["metadata"]["uid"] for pod in shop.wait_running("app=web", 2)}
    shop.apply(deployment("web", pod_spec("echo two", "exec sleep 100000"), replicas=2))
    shop.kubectl("rollout", "status", "deployment/web", "--timeout=60s", timeout_s=90).check()
    shop.wait("only two pods are left", lambda: len(shop.items("pods")) == 2)
    after = shop.wait_running("app=web", 2)
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in after)
    for pod in after:
        assert "two" in shop.kubectl("logs", pod["metadata"]["name"]).check().text


def test_statefulset_with_headless_service(shops: tuple[Shop, Shop]) -> None:
    for shop in shops:
        shop.apply(
            service("db", "db", 8080, clusterIP="None"),
            object_of(
                "apps/v1",
                "StatefulSet",
                "db",
                spec={
                    "serviceName": "db",
                    "replicas": 2,
                    "selector": {"matchLabels": {"app": "db"}},
                    "template": template("db", pod_spec()),
                },
            ),
        )
    for shop in shops:
        pods = shop.wait_running("app=db", 2)
        assert [pod["metadata"]["name"] for pod in pods] == ["db-0", "db-1"]
        for pod in pods:
            name = pod["metadata"]["name"]
            assert shop.sh(name, "hostname").check().text.strip() == name
            hosts = shop.sh(name, "cat /etc/hosts").check().text
            assert shop.super_namespace not in hosts
        shop.wait_own(
            "the slices of both sides lead to both pods",
            lambda own: (
                _addresses(own.items("endpointslices"))
                == _addresses(own.super_items("endpointslices"))
                == {pod["status"]["podIP"] for pod in own.items("pods")}
            ),
        )
    # A pod that is deleted comes again under its name, as another pod.
    first = shops[0]
    before = first.get("pods", "db-0")["metadata"]["uid"]
    first.kubectl("delete", "pod", "db-0", "--wait=false").check()

    def is_back() -> bool:
        found = first.find("pods", "db-0")
        return found is not None and found["metadata"]["uid"] != before

    first.wait("db-0 is another pod", is_back)
    first.wait_running("app=db", 2)


def test_job_completes(shops: tuple[Shop, Shop]) -> None:
    for shop in shops:
        spec = {**pod_spec(f"echo done by {shop.tenant.key}"), "restartPolicy": "Never"}
        job = {"completions": 2, "parallelism": 2, "template": {"spec": spec}}
        shop.apply(object_of("batch/v1", "Job", "sum", spec=job))
    for shop in shops:
        shop.kubectl("wait", "--for=condition=complete", "job/sum", "--timeout=60s", timeout_s=90).check()
        pods = shop.items("pods", "job-name=sum")
        assert [pod["status"]["phase"] for pod in pods] == ["Succeeded"] * 2
        log = shop.kubectl("logs", pods[0]["metadata"]["name"]).check().text
        assert log == f"done by {shop.tenant.key}\n"


def test_failed_job_reports_its_exit_code(shop: Shop) -> None:
    spec = {**pod_spec("exit 7"), "restartPolicy": "Never"}
    shop.apply(object_of("batch/v1", "Job", "bad", spec={"backoffLimit": 0, "template": {"spec": spec}}))
    shop.kubectl("wait", "--for=condition=failed", "job/bad", "--timeout=60s", timeout_s=90).check()
    (pod,) = shop.items("pods", "job-name=bad")
    assert pod["status"]["phase"] == "Failed"
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


def test_job_of_a_cronjob(shop: Shop) -> None:
    spec = {**pod_spec("echo ticked"), "restartPolicy": "Never"}
    cron = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": spec}}}}
    shop.apply(object_of("batch/v1", "CronJob", "tick", spec=cron))
    shop.kubectl("create", "job", "tick-now", "--from=cronjob/tick").check()
    shop.kubectl("wait", "--for=condition=complete", "job/tick-now", "--timeout=60s", timeout_s=90).check()
    # Workloads themselves stay above: only pods and what they need are below.
    names = {pod["metadata"]["labels"]["job-name"] for pod in shop.super_items("pods")}
    assert names == {"tick-now"}


@pytest.mark.slow
def test_cronjob_fires(aging: Shop) -> None:
    """The tenant's own controller makes a job at the full minute; it was there since the ring's start."""
    aging.wait("it has fired", lambda: len(aging.items("pods", "job-name")) == 1, timeout_s=90)
    (pod,) = aging.items("pods", "job-name")
    name = pod["metadata"]["name"]
    aging.wait("it runs", lambda: is_ready(aging.get("pods", name)))
    job = aging.get("jobs", pod["metadata"]["labels"]["job-name"])
    assert job["metadata"]["ownerReferences"][0]["name"] == CRON_JOB
    assert aging.get("cronjobs", CRON_JOB)["status"]["lastScheduleTime"]
    assert aging.kubectl("logs", name).check().text == "ticked\n"
    made = aging.in_super("pods", name)
    assert made is not None
    assert made["status"]["phase"] == "Running"
    # Neither the job nor its CronJob is below.
    for kind in ("jobs", "cronjobs"):
        assert aging.super_items(kind) == []


def test_daemonset_runs_on_each_vnode(shop: Shop) -> None:
    # The first pods bring the vNodes.
    shop.apply(deployment("web", pod_spec(), replicas=4))
    shop.wait_running("app=web", 4)
    shop.apply(
        object_of(
            "apps/v1",
            "DaemonSet",
            "agent",
            spec={"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent", pod_spec())},
        )
    )
    nodes = {node["metadata"]["name"] for node in shop.api.get("/api/v1/nodes")["items"]}
    pods = shop.wait_running("app=agent", len(nodes))
    assert {pod["spec"]["nodeName"] for pod in pods} == nodes


def test_daemonset_runs_on_all_nodes_by_policy(shops: tuple[Shop, Shop]) -> None:
    """With the scope All there are vNodes before there is a pod."""
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent", pod_spec())}
    with policies.applied(shops[0].super_api, vNodes={"scope": "All"}):
        for shop in shops:
            shop.wait_own("all nodes are shown", lambda own: _ready_nodes(own) == set(NODES))
            shop.apply(object_of("apps/v1", "DaemonSet", "agent", spec=spec))
        for shop in shops:
            pods = shop.wait_running("app=agent", len(NODES))
            assert {pod["spec"]["nodeName"] for pod in pods} == set(NODES)
            shop.kubectl("delete", "daemonset", "agent").check()
            shop.wait_own("its pods are gone", lambda own: not own.super_items("pods"))


@pytest.mark.slow
def test_idle_vnodes_go(shops: tuple[Shop, Shop]) -> None:
    """Two minutes after the last pod of the tenant there."""
    for shop in shops:
        shop.wait("idle vNodes are gone", partial(_has_no_idle_node, shop), timeout_s=200)


def test_init_containers_and_sidecars(shop: Shop) -> None:
    sidecar = container("proxy", ["sh", "-c", "exec sleep 100000"], restartPolicy="Always")
    setup = container("setup", ["sh", "-c", "echo set up"])
    spec = {**pod_spec(), "initContainers": [setup, sidecar]}
    shop.apply(deployment("web", spec))
    (pod,) = shop.wait_running("app=web")
    made = shop.in_super("pods", pod["metadata"]["name"])
    assert made is not None
    assert made["spec"]["initContainers"][1]["restartPolicy"] == "Always"
    name = pod["metadata"]["name"]
    assert shop.kubectl("logs", name, "-c", "setup").check().text == "set up\n"
    states = {s["name"]: s["state"] for s in pod["status"]["initContainerStatuses"]}
    assert "running" in states["proxy"]
    assert states["setup"]["terminated"]["exitCode"] == 0


def test_unschedulable_pod_says_so(shop: Shop) -> None:
    spec = pod_spec(nodeSelector={"kubernetes.io/os": "plan9"})
    shop.apply(deployment("web", spec))

    def is_reported() -> bool:
        conditions = [
            condition
            for pod in shop.items("pods", "app=web")
            for condition in pod.get("status", {}).get("conditions", [])
        ]
        return any(
            condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
            for condition in conditions
        )

    shop.wait("the condition reaches the tenant", is_reported)


def test_missing_image_is_reported(shop: Shop) -> None:
    spec = pod_spec()
    spec["containers"][0]["image"] = "ring.test/missing:1"
    shop.apply(deployment("web", spec))

    def is_reported() -> bool:
        reasons = [
            status["state"].get("waiting", {}).get("reason", "")
            for pod in shop.items("pods", "app=web")
            for status in pod.get("status", {}).get("containerStatuses", [])
        ]
        return any(reason.startswith("ErrImage") for reason in reasons)

    shop.wait("the reason reaches the tenant", is_reported)
    shop.wait(
        "and so does the kubelet's event",
        lambda: any(e["reason"] == "Failed" for e in shop.items("events")),
    )


def _ready_nodes(shop: Shop) -> set[str]:
    return {
        node["metadata"]["name"]
        for node in shop.api.get("/api/v1/nodes")["items"]
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
    }


def _has_no_idle_node(shop: Shop) -> bool:
    used = {pod["spec"].get("nodeName") for pod in shop.api.get("/api/v1/pods")["items"]}
    return {node["metadata"]["name"] for node in shop.api.get("/api/v1/nodes")["items"]} <= used


def _addresses(slices: list[dict[str, object]]) -> set[str]:
    found: set[str] = set()
    for each in slices:
        endpoints = each.get("endpoints") or []
        assert isinstance(endpoints, list)
        for endpoint in endpoints:
            if endpoint["conditions"].get("ready"):
                found.update(endpoint["addresses"])
    return found
