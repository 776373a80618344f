# SPDX-License-Identifier: Apache-2.0
"""From objects to causes with remedies."""

from typing import Any

import pytest

from kubectl_vc.core.doctor import TenantFacts, diagnoses, lines
from kubectl_vc.core.view import Object, TenantView
from tests.unit.kubectl_vc.invocations import NOW, condition, running, virtual_cluster

RUNNING = TenantView(running())
NEW = TenantView(virtual_cluster())
ROOT = "tenants-acme"


def lease(renewed: str = "2026-11-30T11:59:55.000000Z") -> Object:
    return {"metadata": {"name": "vc-operator"}, "spec": {"renewTime": renewed}}


def pod(name: str = "etcd-0", status: Any = None) -> Object:
    return {"metadata": {"name": name}, "status": status or {}}


def container(**status: Any) -> Object:
    return pod(status={"containerStatuses": [{"name": "etcd", "image": "etcd:3", "ready": False, **status}]})


def event(at: str, reason: str = "FailedMount", type_: str = "Warning", **times: Any) -> Object:
    about = {"kind": "Pod", "name": "etcd-0"}
    return {
        "type": type_,
        "reason": reason,
        "message": at,
        "involvedObject": about,
        "lastTimestamp": at,
        **times,
    }


LOG = "read its log: kubectl -n tenants-acme logs etcd-0 -c etcd"
ETCD = "Pod tenants-acme/etcd-0, container etcd"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (TenantFacts(RUNNING), []),
        (TenantFacts(RUNNING, versions=[{"metadata": {"name": "v1.34"}}], leases=[], pods=[pod()]), []),
        (
            TenantFacts(RUNNING, versions=[{"metadata": {"name": "v1.33"}}]),
            [
                (
                    "ClusterVersion v1.34",
                    "it does not exist, and spec.clusterVersionName names it",
                    "apply it, or choose another: kubectl vc upgrade acme -n tenants VERSION",
                )
            ],
        ),
        (
            TenantFacts(NEW, leases=[lease()]),
            [
                (
                    "VirtualCluster tenants/acme",
                    "vc-operator has not observed generation 1",
                    "see its log: kubectl logs -A -l app=vc-operator",
                )
            ],
        ),
        (
            TenantFacts(NEW, leases=[]),
            [
                (
                    "vc-operator",
                    "it has never run in this cluster: it has no Lease",
                    "install it; or see its Deployment: kubectl get deployments -A -l app=vc-operator",
                )
            ],
        ),
        (
            TenantFacts(NEW, leases=[lease("2026-11-30T11:50:00Z")]),
            [
                (
                    "vc-operator",
                    "no replica runs: its Lease was renewed 600 s ago",
                    "see its Deployment: kubectl get deployments -A -l app=vc-operator",
                )
            ],
        ),
        (
            TenantFacts(
                TenantView(
                    virtual_cluster(
                        metadata={"deletionTimestamp": "2026-11-30T11:30:00Z"},
                        status={"message": "Pod x/etcd-0 is left"},
                    )
                )
            ),
            [
                (
                    "VirtualCluster tenants/acme",
                    "its deletion began 30m ago and waits for Pod x/etcd-0 is left",
                    "mend or remove that object; see that vc-operator runs",
                )
            ],
        ),
        (
            TenantFacts(
                TenantView(
                    running(
                        "acme",
                        condition(
                            "NodesServing",
                            "False",
                            "NodesRefuse",
                            "node-1 refuses; see whether vn-agent runs",
                        ),
                        condition("Sleeping", "False"),
                    )
                )
            ),
            [("condition NodesServing", "False, NodesRefuse: node-1 refuses", "see whether vn-agent runs")],
        ),
        (
            TenantFacts(
                TenantView(running(conditions=[condition("Ready", "False")])),
            ),
            [
                (
                    "condition Ready",
                    "False, without a reason",
                    "its cause is among what follows, or in the log of vc-operator",
                )
            ],
        ),
        # What a sleeper is asked may be refused.
        (
            TenantFacts(
                TenantView(
                    running(
                        conditions=[
                            condition("Ready", "False"),
                            condition("UpToDate", "False", "RequestInvalid", "'x' is no time; write it so"),
                            condition("CertificatesValid", "False", "Waits", "a; b"),
                            condition("Sleeping"),
                        ],
                        sleep={"since": "2026-11-30T10:00:00Z"},
                    )
                )
            ),
            [("condition UpToDate", "False, RequestInvalid: 'x' is no time", "write it so")],
        ),
        # A sleeper has no pod, and nothing is wrong with that.
        (
            TenantFacts(
                TenantView(
                    running(
                        conditions=[condition("Ready", "False"), condition("Sleeping")],
                        sleep={"since": "2026-11-30T10:00:00Z"},
                    )
                )
            ),
            [],
        ),
        (
            TenantFacts(
                RUNNING,
                pods=[
                    pod(
                        status={
                            "conditions": [
                                {
                                    "type": "PodScheduled",
                                    "status": "False",
                                    "message": "0/2 nodes: Insufficient memory",
                                }
                            ]
                        }
                    )
                ],
            ),
            [
                (
                    "Pod tenants-acme/etcd-0",
                    "no node takes it: 0/2 nodes: Insufficient memory",
                    "add nodes or free resources, or choose a smaller class of the tenant",
                )
            ],
        ),
        (
            TenantFacts(
                RUNNING,
                pods=[container(state={"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}})],
            ),
            [
                (
                    ETCD,
                    "ImagePullBackOff: image etcd:3: no such tag",
                    "correct spec.images of the ClusterVersion, or the registry",
                )
            ],
        ),
        (
            TenantFacts(
                RUNNING,
                pods=[
                    container(
                        state={
                            "waiting": {
                                "reason": "CreateContainerConfigError",
                                "message": 'secret "x" not found',
                            }
                        }
                    )
                ],
            ),
            [
                (
                    ETCD,
                    'CreateContainerConfigError: secret "x" not found',
                    "vc-operator writes what is missing: see its log, and the Secrets there",
                )
            ],
        ),
        (
            TenantFacts(
                RUNNING,
                pods=[
                    container(
                        restartCount=3,
                        state={"waiting": {"reason": "CrashLoopBackOff"}},
                        lastState={"terminated": {"reason": "OOMKilled", "exitCode": 137}},
                    )
                ],
            ),
            [
                (
                    ETCD,
                    "it needed more memory than its limit, 3 restarts",
                    "choose a larger class of the tenant, or raise it in the ClusterVersion",
                )
            ],
        ),
        (
            TenantFacts(
                RUNNING,
                pods=[
                    container(
                        state={"waiting": {"reason": "CrashLoopBackOff"}},
                        lastState={"terminated": {"reason": "Error", "exitCode": 2}},
                    )
                ],
            ),
            [(ETCD, "it ends again and again, exit code 2", f"{LOG} --previous")],
        ),
        (
            TenantFacts(
                RUNNING,
                pods=[container(restartCount=1, state={"running": {"startedAt": "2026-11-30T11:00:00Z"}})],
            ),
            [(ETCD, "it runs and its probe fails, 1 restarts", LOG)],
        ),
        (
            TenantFacts(RUNNING, pods=[container(ready=True, restartCount=6)]),
            [(ETCD, "it has been restarted 6 times", f"{LOG} --previous")],
        ),
        (
            TenantFacts(
                RUNNING,
                workloads=[
                    {
                        "kind": "ReplicaSet",
                        "metadata": {"name": "apiserver-1"},
                        "status": {
                            "conditions": [
                                {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
                            ]
                        },
                    }
                ],
            ),
            [
                (
                    "ReplicaSet apiserver-1",
                    "it cannot make pods: exceeded quota",
                    "change the quota, policy or webhook of the super cluster that the message names",
                )
            ],
        ),
        (
            TenantFacts(
                RUNNING,
                claims=[
                    {
                        "metadata": {"name": "data-etcd-0"},
                        "spec": {"storageClassName": "fast"},
                        "status": {"phase": "Pending"},
                    },
                    {"metadata": {"name": "data-etcd-1"}, "status": {"phase": "Bound"}},
                ],
            ),
            [
                (
                    "PersistentVolumeClaim data-etcd-0",
                    "it is Pending, of fast",
                    "see why: kubectl -n tenants-acme describe pvc data-etcd-0",
                )
            ],
        ),
        (
            TenantFacts(
                RUNNING,
                events=[
                    event("2026-11-30T11:50:00Z"),
                    event("2026-11-30T11:59:00Z"),
                    event("2026-11-30T11:58:00Z"),
                    event("2026-11-30T10:59:00Z", "Old"),
                    event("2026-11-30T11:59:00Z", "Pulled", "Normal"),
                ],
            ),
            [("Event of Pod etcd-0", "FailedMount: 2026-11-30T11:59:00Z", "it was seen 60 s ago")],
        ),
    ],
)
def test_causes(facts: TenantFacts, expected: list[tuple[str, str, str]]) -> None:
    assert [tuple(each) for each in diagnoses(facts, NOW)] == expected


def test_the_newest_five_events_are_shown() -> None:
    events = [event(f"2026-11-30T11:5{minute}:00Z", f"R{minute}") for minute in range(10)]
    found = diagnoses(TenantFacts(RUNNING, events=events), NOW)
    assert [each.cause[:2] for each in found] == ["R9", "R8", "R7", "R6", "R5"]


def test_the_report_names_what_was_not_examined() -> None:
    facts = TenantFacts(RUNNING, unread=("pods in namespace tenants-acme (Forbidden)",))
    assert lines(facts, [], NOW) == [
        "VirtualCluster tenants/acme: Running, v1.34, control plane in namespace tenants-acme",
        "not examined: pods in namespace tenants-acme (Forbidden)",
        "nothing is wrong in what could be examined",
    ]


def test_the_report_of_a_sleeper() -> None:
    view = TenantView(running("acme", condition("Sleeping"), sleep={"since": "2026-11-30T10:00:00Z"}))
    assert lines(TenantFacts(view), [], NOW) == [
        "VirtualCluster tenants/acme: Running, v1.34, control plane in namespace tenants-acme",
        "It sleeps since 2h; to wake it: kubectl vc wake acme -n tenants",
        "nothing is wrong",
    ]
