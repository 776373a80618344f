# SPDX-License-Identifier: Apache-2.0
"""The order of a deletion, its limits and what it waits for; interrupted anywhere it ends the same."""

import datetime as dt
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenant_operator.life import deletion
from tenant_operator.life.deletion import DeletionFacts, DeletionStep, OwnedObject, SharedDatabase, next_step
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import (
    Meta,
    VirtualCluster,
    VirtualClusterSpec,
    VirtualClusterStatus,
)

BEGAN = "2026-11-30T08:00:00Z"
BEGAN_S = dt.datetime(2026, 11, 30, 8, 0, tzinfo=dt.UTC).timestamp()
ROOT = "tenants-7aad2b-acme"

NAMESPACE = Ref("Namespace", "", ROOT)
API_SERVER = Ref("Deployment", ROOT, "apiserver")
ETCD = Ref("StatefulSet", ROOT, "etcd")
VOLUME = Ref("PersistentVolumeClaim", ROOT, "data-etcd-0")
CLUSTER_CA = Ref("Secret", ROOT, "cluster-ca")
ENCRYPTION = Ref("Secret", ROOT, "encryption-config")
KUBECONFIG = Ref("Secret", "tenants", "acme-kubeconfig")
REGISTERED = Ref("Secret", ROOT, "root-ca")
SERVICE = Ref("Service", ROOT, "apiserver-svc")
ALL = (NAMESPACE, API_SERVER, ETCD, VOLUME, CLUSTER_CA, ENCRYPTION, KUBECONFIG, REGISTERED, SERVICE)
TENANT = f"{ROOT}-default"
DATABASE = SharedDatabase(Ref("Secret", "vcnode-system", "postgresql"), ROOT)


def owned(*refs: Ref, ending: tuple[Ref, ...] = (), detail: str = "") -> dict[Ref, OwnedObject]:
    return {
        ref: OwnedObject(f"uid-{ref.name}", ref in ending, detail if ref in ending else "") for ref in refs
    }


def facts(
    *refs: Ref,
    volumes: str = "Delete",
    finalizers: tuple[str, ...] = (deletion.FINALIZER,),
    tenant: tuple[str, ...] = (),
    database: SharedDatabase | None = None,
    ending: tuple[Ref, ...] = (),
    detail: str = "",
    has_synced: bool = True,
) -> DeletionFacts:
    meta = Meta(
        name="acme", namespace="tenants", uid="u", finalizers=list(finalizers), deletion_timestamp=BEGAN
    )
    return DeletionFacts(
        VirtualCluster(
            meta, VirtualClusterSpec(volumes=volumes), VirtualClusterStatus(cluster_namespace=ROOT)
        ),
        owned(*refs, ending=ending, detail=detail),
        {name: OwnedObject(f"uid-{name}") for name in tenant},
        database,
        has_synced,
    )


def uids(*refs: Ref) -> tuple[tuple[Ref, str], ...]:
    return tuple((ref, f"uid-{ref.name}") for ref in refs)


def test_the_tenants_pods_end_first() -> None:
    assert next_step(facts(*ALL, tenant=(TENANT, f"{ROOT}-web")), BEGAN_S + 1) == DeletionStep(
        "TenantPodsRemaining",
        f"waiting for the end of Namespace {TENANT} and 1 more; look at its conditions, and "
        "whether the nodes of its pods run",
        removed=uids(*(Ref("Namespace", "", name) for name in (TENANT, f"{ROOT}-web"))),
        waits_for=Ref("Namespace", "", TENANT),
        deadline_s=BEGAN_S + 300,
    )


@pytest.mark.parametrize(
    ("left", "reason", "removed"),
    [
        # The store's pods end after those that use it.
        (ALL, "WorkloadsRemaining", (API_SERVER,)),
        (tuple(each for each in ALL if each != API_SERVER), "WorkloadsRemaining", (ETCD,)),
        ((NAMESPACE, VOLUME, CLUSTER_CA, REGISTERED, SERVICE), "VolumesRemaining", (VOLUME,)),
        (
            (NAMESPACE, CLUSTER_CA, KUBECONFIG, REGISTERED, SERVICE),
            "CredentialsRemaining",
            (KUBECONFIG, CLUSTER_CA),
        ),
        ((NAMESPACE, REGISTERED, SERVICE), "RegistrationRemaining", (REGISTERED,)),
        ((NAMESPACE, SERVICE), "RootNamespaceRemaining", (NAMESPACE,)),
    ],
)
def test_the_order_of_what_follows(left: tuple[Ref, ...], reason: str, removed: tuple[Ref, ...]) -> None:
    found = next_step(facts(*left), BEGAN_S + 1)
    assert (found.reason, set(found.removed)) == (reason, set(uids(*removed)))


def test_what_was_never_made_is_not_waited_for() -> None:
    """A deletion in the middle of provisioning, also before the root namespace was there."""
    assert next_step(facts(), BEGAN_S) == DeletionStep(
        "Deleted", "nothing is left of VirtualCluster tenants/acme", removes_finalizer=True
    )
    assert next_step(facts(NAMESPACE, CLUSTER_CA), BEGAN_S).removed == uids(CLUSTER_CA)


@pytest.mark.parametrize("finalizers", [(), ("virtualcluster.finalizer.native",)])
def test_the_virtualclusters_of_others_are_left_to_them(finalizers: tuple[str, ...]) -> None:
    found = next_step(facts(*ALL, finalizers=finalizers), BEGAN_S + 10_000)
    assert found == DeletionStep("NotManaged", f"VirtualCluster tenants/acme has no {deletion.FINALIZER}")


def test_nothing_is_removed_before_all_is_known() -> None:
    found = next_step(facts(*ALL, has_synced=False), BEGAN_S + 10_000)
    assert (found.reason, found.removed, found.removes_finalizer) == ("NotSynced", (), False)


def test_a_dead_node_is_named_and_keeps_no_key() -> None:
    """Its pod never ends: after its time the stages behind it begin."""
    left = facts(*ALL, ending=(ETCD,), detail="1 pod on node worker-1")
    assert next_step(left, BEGAN_S + 419).reason == "WorkloadsRemaining"
    found = next_step(left, BEGAN_S + 421)
    assert found.removed == uids(API_SERVER, VOLUME)
    found = next_step(left, BEGAN_S + 700)
    assert found == DeletionStep(
        "WorkloadsRemaining",
        f"waiting for the end of StatefulSet {ROOT}/etcd (1 pod on node worker-1) and 1 more; look at its "
        "conditions and finalizers",
        removed=uids(API_SERVER, VOLUME, KUBECONFIG, CLUSTER_CA, ENCRYPTION, REGISTERED, NAMESPACE),
        waits_for=ETCD,
        is_forced=False,
    )
    assert next_step(left, BEGAN_S + 720).is_forced


def test_a_namespace_that_does_not_end_names_what_is_in_it() -> None:
    detail = "Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances"
    found = next_step(facts(NAMESPACE, ending=(NAMESPACE,), detail=detail), BEGAN_S + 60)
    assert found == DeletionStep(
        "RootNamespaceRemaining",
        f"waiting for the end of Namespace {ROOT} ({detail}); look at its conditions: they name what is left "
        "in it",
        waits_for=NAMESPACE,
    )


def test_a_shared_store_drops_the_database_before_the_keys() -> None:
    found = next_step(facts(NAMESPACE, CLUSTER_CA, database=DATABASE), BEGAN_S + 1)
    assert found == DeletionStep(
        "DatabaseRemaining",
        "waiting for the server of Secret vcnode-system/postgresql to drop database and role "
        f"{ROOT}; start the server, or drop them by hand",
        waits_for=DATABASE.secret,
        deadline_s=BEGAN_S + 600,
        drops_database=True,
    )


def test_a_dead_shared_store_keeps_no_key_and_is_named() -> None:
    dead = msgspec.structs.replace(DATABASE, problem="connection refused")
    found = next_step(facts(NAMESPACE, CLUSTER_CA, database=dead), BEGAN_S + 601)
    assert (found.reason, found.waits_for, found.removed, found.drops_database) == (
        "DatabaseRemaining", DATABASE.secret, uids(CLUSTER_CA), True,
    )  # fmt: skip
    assert "(connection refused)" in found.message
    found = next_step(facts(database=dead), BEGAN_S + 10_000)
    assert (found.reason, found.removes_finalizer) == ("DatabaseRemaining", False)


def test_retained_volumes_keep_their_namespace_and_key() -> None:
    kept = (NAMESPACE, VOLUME, ENCRYPTION)
    found = next_step(facts(*kept, CLUSTER_CA, SERVICE, volumes="Retain"), BEGAN_S + 1)
    assert (found.reason, found.removed) == ("CredentialsRemaining", uids(CLUSTER_CA))
    found = next_step(facts(*kept, SERVICE, volumes="Retain"), BEGAN_S + 1)
    assert (found.reason, found.removed) == ("ObjectsRemaining", uids(SERVICE))
    assert next_step(facts(*kept, volumes="Retain"), BEGAN_S + 1) == DeletionStep(
        "Deleted",
        f"nothing is left of VirtualCluster tenants/acme; PersistentVolumeClaim {ROOT}/data-etcd-0 stay, as "
        "spec.volumes is Retain",
        is_retained=True,
        removes_finalizer=True,
    )


def test_without_volumes_nothing_is_retained() -> None:
    found = next_step(facts(NAMESPACE, ENCRYPTION, volumes="Retain"), BEGAN_S + 1)
    assert (found.reason, found.removed) == ("CredentialsRemaining", uids(ENCRYPTION))


class RemovalsInCluster:
    """What the API server does with each removal: some objects end at once, some late, some never."""

    def __init__(self, refs: tuple[Ref, ...], ends_after_s: dict[Ref, float]) -> None:
        self.refs = set(refs)
        self.ends_after_s = ends_after_s
        self.ending: dict[Ref, float] = {}
        self.removed: list[Ref] = []

    def remove(self, ref: Ref, now_s: float) -> None:
        if ref in self.refs and ref not in self.ending:
            self.ending[ref] = now_s
            self.removed.append(ref)

    def pass_time(self, now_s: float) -> None:
        over = {ref for ref, at_s in self.ending.items() if now_s - at_s >= self.ends_after_s.get(ref, 0.0)}
        if NAMESPACE in self.ending:
            over |= {ref for ref in self.refs if ref.namespace == ROOT}
        if NAMESPACE in over and any(ref.namespace == ROOT for ref in self.refs - over):
            over.discard(NAMESPACE)
        self.refs -= over

    @property
    def facts(self) -> DeletionFacts:
        return facts(*sorted(self.refs), ending=tuple(self.ending))


def run(cluster: RemovalsInCluster, taken: list[int]) -> tuple[list[Ref], float]:
    """The whole deletion; of each plan only so many removals are taken, as the operator dies behind them."""
    counts = itertools.chain(taken, itertools.repeat(100))
    now_s = BEGAN_S
    for _ in range(2000):
        step = next_step(cluster.facts, now_s)
        if step.removes_finalizer:
            return cluster.removed, now_s
        assert step.waits_for is not None
        for ref, _uid in step.removed[: next(counts)]:
            cluster.remove(ref, now_s)
        now_s += 1.0
        cluster.pass_time(now_s)
    raise AssertionError(f"no end: {step.message}")


@given(
    st.sets(st.sampled_from(ALL)),
    st.lists(st.integers(0, 3), max_size=20),
    st.dictionaries(st.sampled_from(ALL), st.sampled_from([0.0, 5.0, 200.0, 900.0])),
)
def test_every_interruption_ends_the_same(
    made: set[Ref], taken: list[int], ends_after_s: dict[Ref, float]
) -> None:
    if any(ref.namespace == ROOT for ref in made):
        made.add(NAMESPACE)
    cluster = RemovalsInCluster(tuple(made), ends_after_s)
    order, _ = run(cluster, taken)
    assert cluster.refs == set()
    # No key is destroyed while the pods that use it may still run, unless their time is over.
    slow = any(after_s > 100 for after_s in ends_after_s.values())
    if not slow and CLUSTER_CA in order and ETCD in order:
        assert order.index(ETCD) < order.index(CLUSTER_CA)
    if NAMESPACE in order:
        assert order[-1] == NAMESPACE or slow


def test_a_whole_deletion_takes_seconds() -> None:
    order, ended_s = run(RemovalsInCluster(ALL, {}), [])
    assert ended_s - BEGAN_S <= 6
    assert order == [API_SERVER, ETCD, VOLUME, KUBECONFIG, CLUSTER_CA, ENCRYPTION, REGISTERED, NAMESPACE]
