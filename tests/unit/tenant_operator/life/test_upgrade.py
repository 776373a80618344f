# SPDX-License-Identifier: Apache-2.0
"""Which upgrades are allowed: all pairs of versions, and what the status has to do with it."""

import itertools

import msgspec
import pytest

from tenant_operator.life.upgrade import (
    AllowedUpgrade,
    AppliedVersion,
    AppliedVersions,
    components,
    judge,
    may_confirm,
)
from tenant_operator.model.cluster_version import DatastoreSpec, Images, Release
from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.virtual_cluster import UpgradeStatus

NOW = "2026-11-30T08:00:00Z"


def release(version: str, etcd: str = "3.7.3", *, name: str = "") -> Release:
    major, minor, patch = map(int, version.split("."))
    name = name or f"v{version}"
    return Release(name, version, (major, minor, patch), etcd, Images(), DatastoreSpec(), {}, "small")


def judged(
    before: str, after: str, upgrade: UpgradeStatus | None = None, **more: object
) -> AllowedUpgrade | SpecProblem:
    current, target = release(before), msgspec.structs.replace(release(after), **more)
    return judge(current, target, upgrade, current_name=current.name, running_version=before, now=NOW)


VERSIONS = ("1.33.4", "1.33.13", "1.34.0", "1.34.4", "1.35.1", "1.36.0", "2.0.0")
ALLOWED = {
    ("1.33.4", "1.33.13"): "Patching",
    ("1.33.13", "1.33.4"): "Patching",
    ("1.34.0", "1.34.4"): "Patching",
    ("1.34.4", "1.34.0"): "Patching",
    ("1.33.4", "1.34.0"): "Upgrading",
    ("1.33.4", "1.34.4"): "Upgrading",
    ("1.33.13", "1.34.0"): "Upgrading",
    ("1.33.13", "1.34.4"): "Upgrading",
    ("1.34.0", "1.35.1"): "Upgrading",
    ("1.34.4", "1.35.1"): "Upgrading",
    ("1.35.1", "1.36.0"): "Upgrading",
}


@pytest.mark.parametrize(("before", "after"), tuple(itertools.permutations(VERSIONS, 2)))
def test_all_pairs_of_versions(before: str, after: str) -> None:
    found = judged(before, after)
    is_down = tuple(map(int, before.split("."))) > tuple(map(int, after.split(".")))
    refused = "DowngradeRefused" if is_down else "MinorVersionSkipped"
    assert found.reason == ALLOWED.get((before, after), refused)
    if isinstance(found, AllowedUpgrade):
        is_patch = found.reason == "Patching"
        assert found.upgrade == UpgradeStatus(f"v{before}", f"v{after}", NOW, confirmed=is_patch)


def test_a_refusal_names_the_field_and_the_remedy() -> None:
    assert judged("1.33.4", "1.35.1") == SpecProblem(
        "spec.clusterVersionName",
        "MinorVersionSkipped",
        "from 1.33.4 to 1.35.1 skips a minor version",
        "upgrade to a ClusterVersion of 1.34 first",
    )
    assert judged("1.34.4", "1.33.4") == SpecProblem(
        "spec.clusterVersionName",
        "DowngradeRefused",
        "from 1.34.4 to 1.33.4: a control plane cannot go back",
        "restore a backup of that version into a new VirtualCluster",
    )


OPEN = UpgradeStatus("v1.33.4", "v1.34.4", NOW)
CONFIRMED = UpgradeStatus("v1.33.4", "v1.34.4", NOW, confirmed=True)


@pytest.mark.parametrize(
    ("current", "target", "upgrade", "reason"),
    [
        # Half way: the status still has the version before.
        ("1.33.4", "1.34.4", OPEN, "Upgrading"),
        ("1.33.4", "1.33.4", OPEN, "RollingBack"),
        ("1.33.4", "1.34.0", OPEN, "UpgradeUnconfirmed"),
        ("1.33.4", "1.33.13", OPEN, "UpgradeUnconfirmed"),
        # Complete, and not confirmed.
        ("1.34.4", "1.34.4", OPEN, "UpToDate"),
        ("1.34.4", "1.33.4", OPEN, "RollingBack"),
        ("1.34.4", "1.34.0", OPEN, "Patching"),
        ("1.34.4", "1.33.13", OPEN, "UpgradeUnconfirmed"),
        ("1.34.4", "1.35.1", OPEN, "UpgradeUnconfirmed"),
        # Confirmed.
        ("1.34.4", "1.33.4", CONFIRMED, "DowngradeRefused"),
        ("1.34.4", "1.35.1", CONFIRMED, "Upgrading"),
        ("1.34.4", "1.34.4", CONFIRMED, "UpToDate"),
    ],
)
def test_an_open_upgrade_leads_forward_or_one_step_back(
    current: str, target: str, upgrade: UpgradeStatus, reason: str
) -> None:
    assert judged(current, target, upgrade).reason == reason


def test_a_patch_keeps_the_way_back() -> None:
    found = judged("1.34.0", "1.34.4", UpgradeStatus("v1.33.4", "v1.34.0", NOW))
    assert found == AllowedUpgrade("Patching", "from ClusterVersion v1.34.0 to v1.34.4", OPEN)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"upgrades_from": ("v1.33.4",)}, "Upgrading"),
        ({"upgrades_from": ("v1.33.9", "v1.33.10")}, "UpgradeNotListed"),
        ({"datastore": DatastoreSpec("kine-sqlite")}, "DatastoreChanged"),
        ({"etcd_version": "3.7.9"}, "Upgrading"),
        ({"etcd_version": "3.8.0"}, "Upgrading"),
        ({"etcd_version": "3.9.0"}, "EtcdVersionSkipped"),
        ({"etcd_version": "3.6.6"}, "EtcdVersionSkipped"),
        ({"etcd_version": ""}, "Upgrading"),
    ],
)
def test_what_else_speaks_against_an_upgrade(changes: dict[str, object], reason: str) -> None:
    assert judged("1.33.4", "1.34.4", None, **changes).reason == reason


def test_the_first_start_takes_any_version() -> None:
    found = judge(None, release("1.34.4"), None, current_name="", running_version="", now=NOW)
    assert found == AllowedUpgrade("Installed", "ClusterVersion v1.34.4 is installed")


def test_a_deleted_current_version_is_waited_for() -> None:
    found = judge(None, release("1.34.4"), None, current_name="old", running_version="1.33.4", now=NOW)
    assert found == SpecProblem(
        "spec.clusterVersionName",
        "ClusterVersionUnknown",
        "the tenant runs ClusterVersion old, which does not exist any more",
        "create it again; only then it is known what the tenant can go to from 1.33.4",
    )


@pytest.mark.parametrize(
    ("running", "reason"),
    [("1.33.4", "ClusterVersionChanged"), ("1.34.0", "UpToDate"), ("1.34.4", "UpToDate"), ("", "UpToDate")],
)
def test_a_version_edited_in_place_is_no_upgrade(running: str, reason: str) -> None:
    target = release("1.34.4", name="v1")
    found = judge(target, target, None, current_name="v1", running_version=running, now=NOW)
    assert found.reason == reason


def applied(etcd: str, api_server: str, controller_manager: str) -> AppliedVersions:
    """Each as `VERSION`, `VERSION+EMULATED`, with a `?` while it is not settled."""

    def one(text: str) -> AppliedVersion:
        version, _, emulated = text.rstrip("?").partition("+")
        is_settled = not text.endswith("?")
        return AppliedVersion(f"v{version}" if version else "", emulated, is_settled, not is_settled)

    return AppliedVersions(one(etcd), one(api_server), one(controller_manager))


RELEASES = {each.name: each for each in map(release, VERSIONS)}


def stepped(
    state: AppliedVersions, target: str, upgrade: UpgradeStatus | None, *, is_asleep: bool = False
) -> tuple[str, str, str, str, str]:
    found = components(state, RELEASES[f"v{target}"], upgrade, RELEASES, is_asleep=is_asleep)
    assert not isinstance(found, SpecProblem)
    return (
        found.etcd.kubernetes_version,
        found.api_server.kubernetes_version,
        found.controller_manager.kubernetes_version,
        found.emulated_version,
        found.waits_for,
    )


OLD, NEW = "1.33.4", "1.34.4"


@pytest.mark.parametrize(
    ("state", "target", "upgrade", "expected"),
    [
        # Upward: etcd, API server, controller manager.
        ((OLD, OLD, OLD), NEW, OPEN, (NEW, OLD, OLD, "", "etcd to run ClusterVersion v1.34.4")),
        (("1.34.4?", OLD, OLD), NEW, OPEN, (NEW, OLD, OLD, "", "etcd to run ClusterVersion v1.34.4")),
        ((NEW, OLD, OLD), NEW, OPEN, (NEW, NEW, OLD, "1.33", "api server to run ClusterVersion v1.34.4")),
        (
            (NEW, "1.34.4+1.33?", OLD),
            NEW,
            OPEN,
            (NEW, NEW, OLD, "1.33", "api server to run ClusterVersion v1.34.4"),
        ),
        (
            (NEW, "1.34.4+1.33", OLD),
            NEW,
            OPEN,
            (NEW, NEW, NEW, "1.33", "controller manager to run ClusterVersion v1.34.4"),
        ),
        ((NEW, "1.34.4+1.33", "1.34.4+1.33"), NEW, OPEN, (NEW, NEW, NEW, "1.33", "")),
        # Confirmed: the emulation ends, the API server's first.
        (
            (NEW, "1.34.4+1.33", "1.34.4+1.33"),
            NEW,
            CONFIRMED,
            (NEW, NEW, NEW, "", "api server to run ClusterVersion v1.34.4"),
        ),
        (
            (NEW, NEW, "1.34.4+1.33"),
            NEW,
            CONFIRMED,
            (NEW, NEW, NEW, "", "controller manager to run ClusterVersion v1.34.4"),
        ),
        ((NEW, NEW, NEW), NEW, CONFIRMED, (NEW, NEW, NEW, "", "")),
        # Back: the controller manager first, etcd last.
        (
            (NEW, "1.34.4+1.33", "1.34.4+1.33"),
            OLD,
            OPEN,
            (NEW, NEW, OLD, "1.33", "controller manager to run ClusterVersion v1.33.4"),
        ),
        (
            (NEW, "1.34.4+1.33", "1.33.4?"),
            OLD,
            OPEN,
            (NEW, NEW, OLD, "1.33", "controller manager to run ClusterVersion v1.33.4"),
        ),
        (
            (NEW, "1.34.4+1.33", OLD),
            OLD,
            OPEN,
            (NEW, OLD, OLD, "", "api server to run ClusterVersion v1.33.4"),
        ),
        ((NEW, OLD, OLD), OLD, OPEN, (OLD, OLD, OLD, "", "etcd to run ClusterVersion v1.33.4")),
        ((OLD, OLD, OLD), OLD, OPEN, (OLD, OLD, OLD, "", "")),
        # The new API server does not start.
        (
            (NEW, "1.34.4+1.33?", OLD),
            OLD,
            OPEN,
            (NEW, OLD, OLD, "", "api server to run ClusterVersion v1.33.4"),
        ),
        # A rollout of the API server backwards ends before etcd follows.
        (
            (NEW, "1.33.4?", OLD),
            OLD,
            OPEN,
            (NEW, OLD, OLD, "", "api server to run ClusterVersion v1.33.4"),
        ),
        # The first start, and a Deployment that a person deleted.
        (("", "", ""), NEW, None, (NEW, NEW, NEW, "", "etcd to run ClusterVersion v1.34.4")),
        ((NEW, OLD, ""), NEW, OPEN, (NEW, NEW, OLD, "1.33", "api server to run ClusterVersion v1.34.4")),
    ],
)
def test_one_component_goes_at_a_time(
    state: tuple[str, str, str],
    target: str,
    upgrade: UpgradeStatus | None,
    expected: tuple[str, str, str, str, str],
) -> None:
    assert stepped(applied(*state), target, upgrade) == expected


def test_nothing_moves_while_it_sleeps() -> None:
    state = applied(OLD, OLD, OLD)
    assert stepped(state, NEW, OPEN, is_asleep=True) == (OLD, OLD, OLD, "", "the tenant to wake")
    assert stepped(state, OLD, None, is_asleep=True) == (OLD, OLD, OLD, "", "")


def test_a_minor_version_of_etcd_comes_last_and_alone() -> None:
    before, after = release(OLD, "3.6.16"), release(NEW, "3.7.3")
    releases = {each.name: each for each in (before, after)}
    state = applied(OLD, "1.34.4+1.33", "1.34.4+1.33")
    found = components(state, after, OPEN, releases)
    assert not isinstance(found, SpecProblem)
    assert (found.etcd, found.waits_for) == (before, "")
    found = components(applied(OLD, NEW, NEW), after, CONFIRMED, releases)
    assert not isinstance(found, SpecProblem)
    assert (found.etcd, found.waits_for) == (after, "etcd to run ClusterVersion v1.34.4")
    # And it does not go back with the others.
    found = components(applied(OLD, OLD, OLD), before, OPEN, releases)
    assert not isinstance(found, SpecProblem)
    assert (found.etcd, found.waits_for) == (before, "")


def test_a_store_of_others_is_not_waited_for() -> None:
    kine = {
        each.name: msgspec.structs.replace(each, datastore=DatastoreSpec("kine-sqlite"), etcd_version="")
        for each in RELEASES.values()
    }
    found = components(applied("?", NEW, NEW), kine["v1.34.4"], None, kine)
    assert not isinstance(found, SpecProblem)
    assert found.waits_for == ""


def test_a_workload_of_an_unknown_version_stops_everything() -> None:
    found = components(applied(NEW, "1.20.0", NEW), RELEASES["v1.34.4"], None, RELEASES)
    assert found == SpecProblem(
        "spec.clusterVersionName",
        "ClusterVersionUnknown",
        "a workload was applied with ClusterVersion v1.20.0, which does not exist any more",
        "create it again: until then nothing of the control plane is changed",
    )


@pytest.mark.parametrize(
    ("requested", "upgrade", "state", "expected"),
    [
        ("v1.34.4", OPEN, (NEW, "1.34.4+1.33", "1.34.4+1.33"), True),
        ("v1.34.4", OPEN, (NEW, "1.34.4+1.33", "1.34.4+1.33?"), False),
        ("v1.34.4", OPEN, (NEW, "1.34.4+1.33", OLD), False),
        ("v1.33.4", OPEN, (NEW, "1.34.4+1.33", "1.34.4+1.33"), False),
        ("", OPEN, (NEW, "1.34.4+1.33", "1.34.4+1.33"), False),
        ("v1.34.4", CONFIRMED, (NEW, NEW, NEW), False),
        ("v1.34.4", None, (NEW, NEW, NEW), False),
    ],
)
def test_a_person_confirms_a_complete_upgrade(
    requested: str, upgrade: UpgradeStatus | None, state: tuple[str, str, str], expected: bool
) -> None:
    assert may_confirm(requested, upgrade, applied(*state), RELEASES["v1.34.4"]) is expected
