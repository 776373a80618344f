# SPDX-License-Identifier: Apache-2.0
"""What each verb writes, prints and waits for."""

import copy
from collections.abc import Callable

import pytest

from devkit.fake_kubectl import FakeKubectl
from kubectl_vc import requests
from kubectl_vc.core.view import CLUSTER_VERSIONS, VIRTUAL_CLUSTERS, Object
from kubectl_vc.invocation import Invocation
from tests.unit.kubectl_vc.invocations import Ended, call, condition, running, virtual_cluster

NOW = "2026-11-30T12:00:00Z"
ACME = "virtualcluster.tenancy.x-k8s.io/acme"
UID = "uid-of-acme"
Verb = Callable[[Invocation], int]


def api_of(value: Object) -> FakeKubectl:
    versions = [{"metadata": {"name": name}} for name in ("v1.33", "v1.34", "v1.35")]
    return FakeKubectl({VIRTUAL_CLUSTERS: [value], CLUSTER_VERSIONS: versions})


def annotated(**annotations: str) -> Object:
    keys = {f"vcnode.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"metadata": {"uid": UID, "annotations": keys}}


def version(name: str) -> Object:
    return {"metadata": {"resourceVersion": "7"}, "spec": {"clusterVersionName": name}}


UPGRADED = running(
    clusterVersion="v1.34", previousClusterVersion="v1.33", upgrade={"from": "v1.33", "to": "v1.34"}
)

ROTATING = running(
    rotations=[
        {"what": "cluster-ca", "token": "one", "phase": "Reissued", "waitsFor": "issued kubeconfigs"},
        {"what": "service-account-keys", "phase": "Trusted"},
    ]
)


@pytest.mark.parametrize(
    ("verb", "words", "value", "patch", "text"),
    [
        (requests.sleep, "sleep acme", running(), annotated(sleep_requested_at=NOW), "is to sleep"),
        (requests.wake, "wake acme", running(), annotated(wake_requested_at=NOW), "is to wake"),
        (
            requests.backup,
            "backup acme",
            running(),
            annotated(backup_requested="acme-20261130-120000"),
            "is to have the backup acme-20261130-120000",
        ),
        (
            requests.backup,
            "backup acme b",
            running(),
            annotated(backup_requested="b"),
            "is to have the backup b",
        ),
        (
            requests.rotate,
            "rotate acme etcd-ca encryption-key",
            running(),
            annotated(rotate_etcd_ca=NOW, rotate_encryption_key=NOW),
            "is to rotate etcd-ca, encryption-key",
        ),
        (
            requests.rotate,
            "rotate acme all",
            running(),
            annotated(
                rotate_cluster_ca=NOW,
                rotate_front_proxy_ca=NOW,
                rotate_etcd_ca=NOW,
                rotate_kubelet_client_ca=NOW,
                rotate_gateway_ca=NOW,
                rotate_service_account_keys=NOW,
                rotate_encryption_key=NOW,
                rotate_certificates=NOW,
            ),
            "is to rotate cluster-ca, front-proxy-ca, etcd-ca, kubelet-client-ca, gateway-ca, "
            "service-account-keys, encryption-key, certificates",
        ),
        (
            requests.rotate,
            "rotate acme cluster-ca --revoke --yes",
            ROTATING,
            annotated(revoke_cluster_ca="one"),
            "revokes the former cluster-ca",
        ),
        (requests.upgrade, "upgrade acme v1.35", running(), version("v1.35"), "goes from v1.34 to v1.35"),
        (
            requests.upgrade,
            "upgrade acme --confirm",
            running(),
            annotated(confirm_upgrade="v1.34"),
            "confirms v1.34",
        ),
        (requests.rollback, "rollback acme", UPGRADED, version("v1.33"), "goes from v1.34 to v1.33"),
        (
            requests.restore,
            "restore acme --from b --yes",
            running(backups=[{"name": "b", "phase": "Completed"}]),
            annotated(restore_requested="b"),
            "goes back to b",
        ),
    ],
)
def test_one_write_for_each_request(verb: Verb, words: str, value: Object, patch: Object, text: str) -> None:
    api = api_of(value)
    assert call(verb, f"{words} -n tenants --no-wait", api) == Ended(0, f"{ACME} {text}\n", "")
    assert api.requests == [("patch", VIRTUAL_CLUSTERS, "tenants", "acme", patch)]


@pytest.mark.parametrize(
    ("verb", "words", "value", "error"),
    [
        (
            requests.upgrade,
            "upgrade acme v2",
            running(),
            "ClusterVersion v2 is not in the super cluster; there are: v1.33, v1.34, v1.35",
        ),
        (
            requests.upgrade,
            "upgrade acme --confirm",
            virtual_cluster(),
            "VirtualCluster tenants/acme runs no version yet: there is nothing to confirm",
        ),
        (
            requests.rollback,
            "rollback acme",
            running(),
            "VirtualCluster tenants/acme has not been upgraded: there is no version to go back to",
        ),
        (
            requests.rollback,
            "rollback acme",
            running(previousClusterVersion="v1.33", upgrade={"confirmed": True}),
            "VirtualCluster tenants/acme: the upgrade from v1.33 is confirmed and cannot be taken back;"
            " restore a"
            " backup: kubectl vc restore acme -n tenants --from BACKUP",
        ),
        (
            requests.restore,
            "restore acme --from c",
            running(backups=[{"name": "a", "phase": "Completed"}, {"name": "b", "phase": "Completed"}]),
            "VirtualCluster tenants/acme has no backup c; there are: a, b",
        ),
        (
            requests.rotate,
            "rotate acme cluster-ca service-account-keys --revoke",
            ROTATING,
            "VirtualCluster tenants/acme: no request of a person replaces service-account-keys now, so it has"
            " no former key to revoke; replace it first: kubectl vc rotate acme service-account-keys -n"
            " tenants",
        ),
        (
            requests.restore,
            "restore acme --from c",
            running(),
            "VirtualCluster tenants/acme has no backup c; make one: kubectl vc backup acme -n tenants",
        ),
    ],
)
def test_what_cannot_be_done_writes_nothing(verb: Verb, words: str, value: Object, error: str) -> None:
    api = api_of(value)
    assert call(verb, f"{words} -n tenants", api).error == error
    assert api.requests == []


def test_a_later_request_wins_whatever_the_clocks() -> None:
    """Who asked for sleep had a clock that is two minutes ahead of ours."""
    asleep = running()
    asleep["metadata"]["annotations"] = {"vcnode.io/sleep-requested-at": "2026-11-30T12:02:00Z"}
    api = api_of(asleep)
    call(requests.wake, "wake acme -n tenants --no-wait", api)
    written = api.requests[0][-1]["metadata"]["annotations"]
    assert written == {"vcnode.io/wake-requested-at": "2026-11-30T12:02:01Z"}


def test_the_object_that_was_read_is_changed_or_none() -> None:
    api = api_of(running())
    changed = api.objects[VIRTUAL_CLUSTERS, "tenants", "acme"]

    class Racing(FakeKubectl):
        def get(self, resource: str, name: str, namespace: str = "") -> Object:
            found = super().get(resource, name, namespace)
            self.objects[VIRTUAL_CLUSTERS, "tenants", "acme"]["metadata"] |= {
                "uid": "new",
                "resourceVersion": "8",
            }
            return found

    api.__class__ = Racing
    for verb, words in ((requests.sleep, "sleep acme"), (requests.upgrade, "upgrade acme v1.35")):
        changed["metadata"] |= {"uid": UID, "resourceVersion": "7"}
        assert ": Conflict: " in call(verb, f"{words} -n tenants", api).error


def test_sleep_and_wake_are_waited_for() -> None:
    api = api_of(running("acme", condition("Sleeping", "False")))

    def falls_asleep(value: Object) -> None:
        value["status"]["conditions"][-1] = condition("Sleeping", message="since 12:00")

    api.changes = [falls_asleep]
    assert call(requests.sleep, "sleep acme -n tenants", api).err == (
        "waiting for VirtualCluster tenants/acme to sleep, at most 0:10:00\n"
        "12:00:00  Sleeping False\n"
        "12:00:00  Sleeping True: since 12:00\n"
        "VirtualCluster tenants/acme: done after 0 s\n"
    )


def test_a_backup_that_fails_ends_the_wait() -> None:
    api = api_of(running())
    failed = {"name": "b", "phase": "Failed", "message": "the volume is full"}
    api.changes = [lambda value: value["status"].update(backups=[failed])]
    ended = call(requests.backup, "backup acme b -n tenants", api)
    assert ended.error == "VirtualCluster tenants/acme: backup b failed: the volume is full"


def test_a_backup_is_not_written_again() -> None:
    api = api_of(running(backups=[{"name": "b", "phase": "Completed"}, {"name": "c", "phase": "Failed"}]))
    assert call(requests.backup, "backup acme b -n tenants", api).error == (
        "VirtualCluster tenants/acme has a backup b already; choose another name"
    )
    assert call(requests.restore, "restore acme --from c -n tenants", api).error == (
        "VirtualCluster tenants/acme has no backup c; there are: b"
    )
    assert api.requests == []


def test_the_same_backup_is_restored_again() -> None:
    """vc-operator does a request once; it is taken back before it is made again."""
    restored = {"backup": "b", "phase": "Completed"}
    api = api_of(running(backups=[{"name": "b", "phase": "Completed"}], restore=restored))

    def forgets(value: Object) -> None:
        value["status"]["restore"] = {}
        api.changes = [restores]

    def restores(value: Object) -> None:
        value["status"]["restore"] = {**restored, "message": "deletions are held: vcnode tenants --release t"}

    api.changes = [forgets]
    ended = call(requests.restore, "restore acme --from b -n tenants --yes", api)
    assert (ended.code, ended.out) == (0, f"{ACME} goes back to b\n")
    assert [each[-1]["metadata"]["annotations"] for each in api.requests] == [
        {"vcnode.io/restore-requested": None},
        {"vcnode.io/restore-requested": "b"},
    ]
    assert ended.err.splitlines() == [
        "waiting for VirtualCluster tenants/acme to be ready for another restore, at most 0:10:00",
        "12:00:00  vc-operator has not closed the restore of b before",
        "VirtualCluster tenants/acme: done after 0 s",
        "waiting for VirtualCluster tenants/acme to go back to the backup b, at most 0:10:00",
        "VirtualCluster tenants/acme: done after 0 s",
        "deletions are held: vcnode tenants --release t",
    ]


def test_restore_asks_before_it_overwrites() -> None:
    api = api_of(running(backups=[{"name": "b", "phase": "Completed"}]))
    question = (
        "All objects of VirtualCluster tenants/acme go back to the backup b: what was written since is lost."
        " (--to NEW restores it beside.)\nType its name, acme, to go on: "
    )
    refused = call(requests.restore, "restore acme --from b -n tenants", api, typed="yes\n")
    assert refused == Ended(1, "", f"{question}not confirmed: nothing was changed\n")
    assert api.requests == []
    done = call(requests.restore, "restore acme --from b -n tenants --no-wait", api, typed="acme\n")
    assert done == Ended(0, f"{ACME} goes back to b\n", question)


def test_a_copy_is_made_from_the_backup() -> None:
    spec = {
        "clusterVersionName": "v1.35",
        "class": "large",
        "import": {"secretName": "s"},
        "exposure": {"type": "LoadBalancer", "hostName": "acme.example"},
        "transparentMetaPrefixes": ["a/"],
    }
    value = running(backups=[{"name": "b", "phase": "Completed"}])
    value["spec"] = spec
    api = api_of(value)
    ended = call(requests.restore, "restore acme --from b --to new -n tenants --no-wait", api)
    assert ended == Ended(0, "virtualcluster.tenancy.x-k8s.io/new created in namespace tenants\n", "")
    assert api.requests == [
        (
            "create",
            "tenants",
            {
                "apiVersion": "tenancy.x-k8s.io/v1alpha1",
                "kind": "VirtualCluster",
                "metadata": {"name": "new"},
                "spec": {
                    # What runs now: the backup is of it, and not of the version that is to come.
                    "clusterVersionName": "v1.34",
                    "class": "large",
                    "exposure": {"type": "LoadBalancer"},
                    "transparentMetaPrefixes": ["a/"],
                    "restoreFrom": {"backup": "b", "uid": UID},
                },
            },
        )
    ]


def test_a_revocation_is_confirmed_and_waited_for() -> None:
    api = api_of(copy.deepcopy(ROTATING))
    assert call(requests.rotate, "rotate acme cluster-ca --revoke -n tenants", api, typed="\n").code == 1
    assert api.requests == []

    def completes(value: Object) -> None:
        value["status"] |= {"rotations": [], "rotated": {"cluster-ca": "one"}}

    api.changes = [completes]
    ended = call(requests.rotate, "rotate acme cluster-ca --revoke -n tenants --wait --yes", api)
    assert ended == Ended(
        0,
        f"{ACME} revokes the former cluster-ca\n",
        "waiting for VirtualCluster tenants/acme to complete the rotation, at most 0:10:00\n"
        "12:00:00  cluster-ca Reissued: issued kubeconfigs\n"
        "VirtualCluster tenants/acme: done after 0 s\n",
    )
