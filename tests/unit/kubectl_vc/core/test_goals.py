# SPDX-License-Identifier: Apache-2.0
"""When a request is complete, failed, or pending."""

import pytest

from kubectl_vc.core import goals
from kubectl_vc.core.goals import Goal, Judgement
from kubectl_vc.core.view import Object, TenantView
from tests.unit.kubectl_vc.invocations import condition, running, virtual_cluster

NOT_OBSERVED = Judgement(False, waits_for="vc-operator has not observed the object")
PENDING = condition("Ready", "False", "EtcdPending", "StatefulSet etcd has 0 of 1 ready")


@pytest.mark.parametrize(
    ("goal", "value", "expected"),
    [
        (goals.ready(), running(), Judgement(True)),
        (goals.ready(), virtual_cluster(), NOT_OBSERVED),
        (
            goals.ready(),
            virtual_cluster(status={"observedGeneration": 1, "phase": "Pending", "conditions": [PENDING]}),
            Judgement(False, waits_for="Ready False (EtcdPending): StatefulSet etcd has 0 of 1 ready"),
        ),
        (
            goals.ready(),
            virtual_cluster(
                status={
                    "observedGeneration": 1,
                    "phase": "Error",
                    "conditions": [condition("Ready", "False", "CidrsOverlap", "change spec.serviceCidr")],
                }
            ),
            Judgement(False, failure="Ready False (CidrsOverlap): change spec.serviceCidr"),
        ),
    ],
)
def test_ready(goal: Goal, value: Object, expected: Judgement) -> None:
    assert goal.judge(TenantView(value)) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {},
            Judgement(
                False,
                waits_for="etcd-ca: vc-operator has not begun its rotation; certificates: vc-operator has not"
                " begun its rotation",
            ),
        ),
        (
            {
                "rotations": [
                    {"what": "etcd-ca", "token": "t", "phase": "Trusted", "waitsFor": "Pod etcd-0"}
                ],
                "rotated": {"certificates": "t", "etcd-ca": "of before"},
            },
            Judgement(False, waits_for="etcd-ca Trusted: Pod etcd-0"),
        ),
        ({"rotated": {"certificates": "t", "etcd-ca": "t"}}, Judgement(True)),
    ],
)
def test_rotated(status: Object, expected: Judgement) -> None:
    """What is complete stands in the status no longer among what rotates."""
    goal = goals.rotated({"etcd-ca": "t", "certificates": "t"})
    assert goal.judge(TenantView(running(**status))) == expected


def test_what_has_changed_is_printed_and_nothing_twice() -> None:
    first = TenantView(running("acme", PENDING | {"type": "SyncerAttached"}, condition("CertificatesValid")))
    same = TenantView(running("acme", PENDING | {"type": "SyncerAttached"}, condition("CertificatesValid")))
    attached = TenantView(
        running("acme", condition("SyncerAttached"), condition("CertificatesValid", "False"))
    )
    line = "SyncerAttached False (EtcdPending): StatefulSet etcd has 0 of 1 ready"
    assert goals.changes(None, first) == [line]
    assert goals.changes(first, same) == []
    assert goals.changes(same, attached) == ["SyncerAttached True", "CertificatesValid False"]


def test_the_announcement_names_object_goal_and_time() -> None:
    assert goals.announcement(TenantView(running()), goals.ready(), 90.0) == (
        "waiting for VirtualCluster tenants/acme to become Ready, at most 0:01:30"
    )
