# SPDX-License-Identifier: Apache-2.0
"""Whatever becomes of the ClusterVersion that a tenant runs: it stays as it is, cared for, and says why."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import msgspec
import pytest

from tenancy import keys
from tenant_operator.core.steps import Apply, IssueLeaf
from tenant_operator.model import names
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.worlds import VERSION, FakeWorld, virtual_cluster

NAME = "v1.34"
IMAGES = {"apiServer": "a:1", "controllerManager": "c:1", "etcd": "e:1"}
_GONE = {"metadata": {"name": "v1.30"}, "spec": {"kubernetesVersion": "1.30.1"}}


def version(name: str, kubernetes: str = "1.34.4", **spec: object) -> Object:
    """A ClusterVersion whose images have its name."""
    images = {"apiServer": f"a:{name}", "controllerManager": f"c:{name}", "etcd": f"e:{name}"}
    found = {"kubernetesVersion": kubernetes, "etcdVersion": "3.7.3", "images": images, **spec}
    return {"metadata": {"name": name}, "spec": found}


def edited(**spec: object) -> Object:
    found: Object = copy.deepcopy(VERSION)
    found["spec"] |= spec
    return found


# By what the condition says: each is the one ClusterVersion that is left.
CHANGES: Mapping[str, tuple[Object, str]] = {
    "it is deleted": (_GONE, "ClusterVersionUnknown"),
    "it is made again with a newer Kubernetes": (version(NAME, "1.36.0"), "ClusterVersionChanged"),
    "it is made again with an older Kubernetes": (version(NAME, "1.33.1"), "ClusterVersionChanged"),
    "its etcd goes down": (edited(etcdVersion="3.6.4"), "ClusterVersionChanged"),
    "its etcd goes up": (edited(etcdVersion="3.8.0"), "ClusterVersionChanged"),
    "another datastore": (
        edited(datastore={"type": "kine-sqlite"}, images={**IMAGES, "kine": "k:1"}),
        "ClusterVersionChanged",
    ),
    "an image is missing": (edited(images={"apiServer": "a:2"}), "ImageMissing"),
    "its Kubernetes is no version": (edited(kubernetesVersion="newest"), "VersionUnknown"),
    "it is too old for a newer operator": (edited(kubernetesVersion="1.20.1"), "VersionUnsupported"),
    "the tenant's class is gone": (edited(classes={"large": {}}, defaultClass="large"), ""),
    "the default class is unknown": (edited(classes={"large": {}}), "ClassUnknown"),
}


def images(world: FakeWorld) -> dict[str, str]:
    """By workload."""
    return {
        ref.name: value["spec"]["template"]["spec"]["containers"][0]["image"]
        for ref, value in world.objects.items()
        if ref.kind in ("Deployment", "StatefulSet")
    }


def condition(world: FakeWorld, type_: str) -> Object:
    found: Object = next(each for each in world.cluster["status"]["conditions"] if each.get("type") == type_)
    return found


def running(**spec: str) -> FakeWorld:
    world = FakeWorld(virtual_cluster(**spec))
    world.run()
    return world


def upgrading() -> FakeWorld:
    """To a new minor version, complete and not confirmed."""
    world = running()
    world.more_versions = (version("v1.35", "1.35.0"),)
    world.cluster["spec"]["clusterVersionName"] = "v1.35"
    world.run()
    return world


STATES: Mapping[str, Callable[[], FakeWorld]] = {"running": running, "not confirmed": upgrading}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("change", [each for each, (_, reason) in CHANGES.items() if reason])
def test_what_cannot_be_followed_changes_nothing(change: str, state: str) -> None:
    world = STATES[state]()
    before, (world.version, reason) = images(world), CHANGES[change]
    api_server = world.objects[
        Ref("Deployment", str(world.cluster["status"]["clusterNamespace"]), "apiserver")
    ]
    template = copy.deepcopy(api_server["spec"]["template"])
    world.run()
    assert images(world) == before
    assert api_server["spec"]["template"] == template
    assert condition(world, "Ready")["status"] == "True"
    if state == "running":
        found = condition(world, "UpToDate")
        assert (found["status"], found["reason"]) == ("False", reason)
        assert f"ClusterVersion {NAME}" in found["message"]
    else:
        assert world.cluster["status"]["previousClusterVersion"] == NAME


@pytest.mark.parametrize("change", [*CHANGES, "another one is named"])
def test_certificates_are_renewed_all_the_same(change: str) -> None:
    world = running()
    if change in CHANGES:
        world.version = CHANGES[change][0]
    else:
        world.cluster["spec"]["clusterVersionName"] = "v9"
    world.now_s += 20 * 3600
    assert any(isinstance(step, IssueLeaf) for step in world.plan().steps)


@pytest.mark.parametrize("change", [*CHANGES, "another one is named"])
def test_a_tenant_wakes_all_the_same(change: str) -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    world.cluster["metadata"]["annotations"] = {keys.SLEEP_REQUESTED_AT: "2027-01-15T08:00:00Z"}
    world.run()
    assert condition(world, "Sleeping")["status"] == "True"
    since = world.cluster["status"]["sleep"]
    if change in CHANGES:
        world.version = CHANGES[change][0]
    else:
        world.cluster["spec"]["clusterVersionName"] = "v9"
    world.now_s += 3600
    world.run()
    assert world.cluster["status"]["sleep"] == since
    world.cluster["metadata"]["annotations"][keys.WAKE_REQUESTED_AT] = "2027-01-15T08:30:00Z"
    world.run()
    assert condition(world, "Sleeping")["status"] == "False"
    assert condition(world, "Ready")["status"] == "True"


def test_a_class_that_went_is_kept_until_another_is_asked_for() -> None:
    world = FakeWorld(virtual_cluster(**{"class": "tiny"}), version=edited(classes={"tiny": {}, "small": {}}))
    world.run()
    world.version = edited(classes={"small": {}})
    world.run()
    found = condition(world, "UpToDate")
    assert (found["status"], found["reason"]) == ("False", "ClassUnknown")
    assert condition(world, "Ready")["status"] == "True"
    world.cluster["spec"]["class"] = "small"
    world.run()
    assert condition(world, "UpToDate")["status"] == "True"


def test_an_edit_that_can_be_followed_is_followed() -> None:
    world = running()
    world.version = edited(kubernetesVersion="1.34.5", images={**IMAGES, "apiServer": "a:2"})
    world.run()
    assert images(world)["apiserver"] == "a:2"
    assert condition(world, "UpToDate")["status"] == "True"
    world.version = _GONE
    world.run()
    assert images(world)["apiserver"] == "a:2"


def test_a_renamed_version_skips_no_minor_version() -> None:
    world = running()
    before, world.version = images(world), version("v1.36", "1.36.0")
    world.cluster["spec"]["clusterVersionName"] = "v1.36"
    world.run()
    assert images(world) == before
    assert condition(world, "UpToDate")["reason"] == "MinorVersionSkipped"


def test_an_emulation_ends_with_the_confirmation_alone() -> None:
    world = upgrading()
    ref = Ref("Deployment", str(world.cluster["status"]["clusterNamespace"]), names.API_SERVER)
    emulated = [each for each in arguments(world, ref) if "emulated" in each]
    assert len(emulated) == 1
    world.version = _GONE
    world.run()
    assert [each for each in arguments(world, ref) if "emulated" in each] == emulated


def arguments(world: FakeWorld, ref: Ref) -> list[str]:
    found: list[str] = world.objects[ref]["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def test_an_edited_record_is_written_again() -> None:
    """By hand, while the ClusterVersion is there."""
    world = running()
    ref = Ref("ConfigMap", str(world.cluster["status"]["clusterNamespace"]), names.CLUSTER_VERSIONS)
    good = copy.deepcopy(world.objects[ref]["data"])
    for text in ("", "{", "[]", '{"kubernetesVersion": 5}', '{"kubernetesVersion": "1.99.1"}'):
        world.objects[ref]["data"] = {NAME: text, "other": text}
        assert [step for step in world.plan().steps if isinstance(step, Apply)] != []
        world.objects[ref]["data"] = copy.deepcopy(good)
    assert world.plan().steps == ()


def test_ranges_are_judged_when_the_tenant_is_made() -> None:
    """The configuration changes: a tenant that is there is cared for."""
    world = running()
    world.settings = msgspec.structs.replace(world.settings, pod_cidrs=("10.32.0.0/16",))
    world.now_s += 20 * 3600
    assert any(isinstance(step, IssueLeaf) for step in world.plan().steps)
    new = FakeWorld(virtual_cluster(), settings=world.settings)
    assert new.plan().steps == ()
    assert new.plan().findings[0].reason == "ServiceRangeOverlaps"


def test_a_confirmation_is_of_what_the_upgrade_leads_to() -> None:
    """The annotation is of a patch release that somebody chooses later."""
    world = running()
    world.more_versions = (version("v1.35", "1.35.0"), version("v1.35.1", "1.35.1"))
    world.cluster["spec"]["clusterVersionName"] = "v1.35"
    world.run()
    world.cluster["metadata"]["annotations"] = {keys.CONFIRM_UPGRADE: "v1.35.1"}
    world.run()
    assert condition(world, "UpToDate")["reason"] == "RequestInvalid"
    world.cluster["spec"]["clusterVersionName"] = "v1.35.1"
    world.run()
    upgrade = world.cluster["status"]["upgrade"]
    assert (upgrade["to"], upgrade.get("confirmed", False)) == ("v1.35.1", False)
    assert world.cluster["metadata"]["annotations"] == {}
    world.cluster["metadata"]["annotations"][keys.CONFIRM_UPGRADE] = "v1.35.1"
    world.run()
    assert world.cluster["status"]["upgrade"]["confirmed"] is True


@pytest.mark.parametrize("left", ["v1.35", "v1.34"])
def test_a_confirmation_is_of_one_upgrade(left: str) -> None:
    """The annotation is of an upgrade that was taken back, or of one before this."""
    world = running()
    world.cluster["metadata"]["annotations"] = {keys.CONFIRM_UPGRADE: left, "of": "others"}
    world.more_versions = (version("v1.35", "1.35.0"),)
    world.cluster["spec"]["clusterVersionName"] = "v1.35"
    world.run()
    assert world.cluster["metadata"]["annotations"] == {"of": "others"}
    assert world.cluster["status"]["upgrade"].get("confirmed", False) is False
    world.cluster["metadata"]["annotations"][keys.CONFIRM_UPGRADE] = "v1.35"
    world.run()
    assert world.cluster["status"]["upgrade"]["confirmed"] is True
