# SPDX-License-Identifier: Apache-2.0
"""What `kubectl vc get` prints, whole."""

import pytest

from kubectl_vc.core.table import age, aligned, table
from kubectl_vc.core.view import TenantView
from tests.unit.kubectl_vc.invocations import NOW, condition, running, virtual_cluster

VIEWS = [
    TenantView(each)
    for each in (
        running("acme", condition("Sleeping", "False")),
        running(
            "asleep",
            condition(
                "Sleeping", message="since 10:00 by schedule; a request or 07:00 wakes it; holds 2 volumes"
            ),
            sleep={"since": "2026-11-30T10:00:00Z"},
        ),
        running("drowsy", condition("Sleeping"), sleep={"since": "2026-11-28T10:00:00Z"}),
        virtual_cluster("new"),
        virtual_cluster(
            "pending",
            spec={"class": "large"},
            status={
                "phase": "Pending",
                "conditions": [
                    {"status": "", "reason": "ClusterCreating"},
                    condition("Ready", "False", "EtcdPending", "StatefulSet etcd has 0 of 1 ready"),
                ],
            },
        ),
        virtual_cluster(
            "gone",
            metadata={"deletionTimestamp": "2026-11-30T11:59:00Z"},
            status={"message": "waits for PersistentVolumeClaim data-etcd-0"},
        ),
        running(
            "up",
            condition("CertificatesValid", "False", "Expiring", "apiserver-serving"),
            clusterVersion="v1.33",
            kubernetesVersion="1.33.4",
            endpoint="https://up:6443",
        ),
        virtual_cluster("upstreams", status={"phase": "Running"}),
    )
]


def test_a_row_for_each() -> None:
    assert table(VIEWS, NOW, has_namespaces=False, is_wide=False) == [
        "NAME        PHASE         READY     VERSION          CLASS   SLEEPING SINCE   AGE     WAITS FOR",
        "acme        Running       True      v1.34            -       -                2h30m   -",
        "asleep      Running       True      v1.34            -       2h               2h30m   since 10:00"
        " by schedule;"
        " a request or 07:00 wakes it; holds 2 volumes",
        "drowsy      Running       True      v1.34            -       2d               2h30m   asleep; to"
        " wake it:"
        " kubectl vc wake drowsy -n tenants",
        "new         Pending       Unknown   v1.34            -       -                2h30m   vc-operator"
        " has not"
        " observed it",
        "pending     Pending       False     v1.34            large   -                2h30m   Ready False"
        " (EtcdPending): StatefulSet etcd has 0 of 1 ready",
        "gone        Terminating   Unknown   v1.34            -       -                2h30m   waits for"
        " PersistentVolumeClaim data-etcd-0",
        "up          Running       True      v1.33 to v1.34   -       -                2h30m  "
        " CertificatesValid False"
        " (Expiring): apiserver-serving",
        "upstreams   Running       Unknown   v1.34            -       -                2h30m   -",
    ]


def test_wide_rows_with_namespaces() -> None:
    assert table([VIEWS[0], VIEWS[6]], NOW, has_namespaces=True, is_wide=True) == [
        "NAMESPACE   NAME   PHASE     READY   VERSION          CLASS   SLEEPING SINCE   AGE     KUBERNETES"
        "   ENDPOINT"
        "          CLUSTER NAMESPACE   WAITS FOR",
        "tenants     acme   Running   True    v1.34            -       -                2h30m   -         "
        "   -       "
        "          tenants-acme        -",
        "tenants     up     Running   True    v1.33 to v1.34   -       -                2h30m   1.33.4      "
        " https://up:6443   tenants-up          CertificatesValid False (Expiring): apiserver-serving",
    ]


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert aligned([["a\x1b[2J\n", "b"]]) == ["a\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}   b"]


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("2026-11-30T12:00:00Z", "0s"),
        ("2026-11-30T12:01:00Z", "0s"),
        ("2026-11-30T11:58:01Z", "119s"),
        ("2026-11-30T11:58:00Z", "2m"),
        ("2026-11-30T10:00:00Z", "2h"),
        ("2026-11-30T09:01:00Z", "2h59m"),
        ("2026-11-30T09:00:00Z", "3h"),
        ("2026-11-28T12:00:01Z", "47h"),
        ("2026-11-28T12:00:00Z", "2d"),
        ("", ""),
        ("yesterday", ""),
        ("2026-11-30T12:00:00", ""),
    ],
)
def test_ages(since: str, expected: str) -> None:
    assert age(since, NOW) == expected
