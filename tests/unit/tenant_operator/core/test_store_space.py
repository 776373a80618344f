# SPDX-License-Identifier: Apache-2.0
"""Space is freed of a store that is full, and of none that is lost."""

from __future__ import annotations

import pytest

from tenant_operator.core.conditions import timestamp
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.plan import TenantPlan
from tenant_operator.core.steps import Apply, Remove
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster


def _unready(kind: str = "etcd", members: int = 1) -> FakeWorld:
    """All pods run, the API server is ready, the store is not."""
    images = {"apiServer": "a:1", "controllerManager": "c:1", "etcd": "e:1", "kine": "k:1"}
    spec = {
        "kubernetesVersion": "1.34.4",
        "etcdVersion": "3.7.3",
        "images": images,
        "datastore": {"type": kind},
        "classes": {"small": {"etcd": {"replicas": members, "quotaBytes": 512 << 20}}},
    }
    world = FakeWorld(virtual_cluster(), version={"metadata": {"name": "v1.34"}, "spec": spec})
    world.run()
    _status(world, "StatefulSet", "etcd")["readyReplicas"] = 0
    return world


def _full(revision: str = "392", members: int = 1) -> FakeWorld:
    world = _unready(members=members)
    _answer(world, revision)
    return world


def _answer(world: FakeWorld, revision: str) -> None:
    facts = {"revision": revision} if revision else {}
    world.probes["store"] = ProbeResult(is_ok=False, at=world.now_s, facts=facts)


def _status(world: FakeWorld, kind: str, name: str) -> Object:
    found: Object = world.objects[Ref(kind, _key(world), name)]["status"]
    return found


def _key(world: FakeWorld) -> str:
    return str(world.cluster["status"]["clusterNamespace"])


def _steps(made: TenantPlan) -> list[str]:
    """The objects of Jobs and of their fence that are written, and those that are removed."""
    found = []
    for each in made.steps:
        if isinstance(each, Apply):
            found.append(f"{each.manifest['kind']}/{each.manifest['metadata']['name']}")
        elif isinstance(each, Remove):
            found.append(f"-{each.ref.kind}/{each.ref.name}")
    return found


def _carry_out(world: FakeWorld) -> list[str]:
    """The next plan, without what controllers do."""
    made = world.plan()
    for step in made.steps:
        world.carry_out(step)
    return _steps(made)


def _end(world: FakeWorld, job: str, how: str = "Complete", succeeded: int | None = None) -> None:
    end = {"type": how, "status": "True", "lastTransitionTime": timestamp(world.now_s)}
    count = int(how == "Complete") if succeeded is None else succeeded
    world.objects[Ref("Job", _key(world), job)]["status"] = {"conditions": [end], "succeeded": count}


def _available(world: FakeWorld) -> tuple[str, str]:
    made = world.plan()
    return next((each.reason, each.message) for each in made.findings if each.type == "ControlPlaneAvailable")


def test_a_store_that_is_not_ready_is_asked() -> None:
    world = _unready()
    made = world.plan()
    assert [each.name for each in made.probes] == ["store"]
    assert _steps(made) == []
    assert _available(world)[0] == "WorkloadNotReady"


def test_the_condition_has_the_remedy() -> None:
    world = _full()
    assert _available(world) == (
        "StoreRefusesWrites",
        f"etcd in namespace {_key(world)} is full and refuses writes: delete objects of the tenant, or give "
        "its class more than quotaBytes 536870912 (512Mi) in ClusterVersion v1.34; what is free then is "
        "given back by itself",
    )


def test_what_is_old_is_forgotten_before_space_is_freed() -> None:
    world = _full()
    assert _carry_out(world) == ["NetworkPolicy/backup", "Job/compact"]
    assert _carry_out(world) == []
    _end(world, "compact")
    assert _carry_out(world) == ["Job/free-space"]
    assert _carry_out(world) == []
    # While the file is written anew nothing is answered.
    _answer(world, "")
    assert _available(world)[0] == "StoreRefusesWrites"
    _end(world, "free-space")
    _answer(world, "392")
    assert _carry_out(world) == ["Job/disarm"]
    _answer(world, "")
    assert _available(world)[0] == "StoreRefusesWrites"
    _end(world, "disarm")
    assert _available(world)[0] == "WorkloadNotReady"


def _tried(how: str = "Complete", members: int = 1, succeeded: int | None = None) -> FakeWorld:
    """All Jobs have ended once, and the store is full."""
    world = _full(members=members)
    _carry_out(world)
    _end(world, "compact", "Failed")
    _carry_out(world)
    _end(world, "free-space", how, succeeded)
    if _carry_out(world) == ["Job/disarm"]:
        _end(world, "disarm")
    return world


def test_majority_that_has_space_is_enough() -> None:
    """The third member does not answer."""
    world = _full(members=3)
    _status(world, "StatefulSet", "etcd")["replicas"] = 2
    _carry_out(world)
    _end(world, "compact")
    _carry_out(world)
    _end(world, "free-space", "Failed", succeeded=2)
    assert _carry_out(world) == ["Job/disarm"]


def test_without_a_majority_nothing_is_disarmed() -> None:
    world = _tried("Failed", members=3, succeeded=1)
    assert Ref("Job", _key(world), "disarm") not in world.objects
    world.now_s += 60.0
    _answer(world, "392")
    assert _carry_out(world) == ["-Job/free-space"]


def test_space_of_a_majority_is_not_made_again_soon() -> None:
    world = _tried("Failed", members=3, succeeded=2)
    world.now_s += 299.0
    _answer(world, "392")
    assert _carry_out(world) == []


def test_alarm_is_disarmed_after_each_try() -> None:
    """Before a next one begins, though something is deleted all the time."""
    world = _tried()
    world.now_s += 300.0
    _answer(world, "393")
    _carry_out(world)
    _carry_out(world)
    _end(world, "compact")
    assert _carry_out(world) == ["-Job/free-space"]
    assert _carry_out(world) == ["Job/free-space"]
    _end(world, "free-space")
    world.now_s += 100.0
    _answer(world, "394")
    assert [_carry_out(world), _carry_out(world), _carry_out(world)] == [["-Job/disarm"], ["Job/disarm"], []]


def test_what_was_not_disarmed_is_tried_again_soon() -> None:
    world = _tried()
    _end(world, "disarm", "Failed")
    world.now_s += 59.0
    _answer(world, "393")
    assert _carry_out(world) == []
    world.now_s += 1.0
    assert _carry_out(world) == ["-Job/disarm"]


def test_a_try_that_made_no_room_is_not_repeated_at_once() -> None:
    world = _tried()
    assert _carry_out(world) == []
    world.now_s += 299.0
    _answer(world, "392")
    assert _carry_out(world) == []
    world.now_s += 1.0
    assert _carry_out(world) == ["-Job/compact"]


def test_when_something_was_deleted_it_is_tried_again() -> None:
    world = _tried()
    _answer(world, "393")
    assert _carry_out(world) == [], "members that have just written their files anew have a pause"
    world.now_s += 20.0
    _answer(world, "393")
    seen = [_carry_out(world), _carry_out(world)]
    _end(world, "compact")
    seen += [_carry_out(world), _carry_out(world)]
    assert seen == [["-Job/compact"], ["Job/compact"], ["-Job/free-space"], ["Job/free-space"]]


def test_members_with_a_new_quota_are_let_write() -> None:
    world = _tried()
    world.now_s += 20.0
    _answer(world, "392")
    _status(world, "StatefulSet", "etcd")["updatedReplicas"] = 0
    assert _carry_out(world) == ["-Job/compact"]


def test_what_failed_is_tried_again_soon() -> None:
    world = _tried("Failed")
    world.now_s += 59.0
    _answer(world, "392")
    assert _carry_out(world) == []
    world.now_s += 1.0
    assert _carry_out(world) == ["-Job/free-space"]


@pytest.mark.parametrize(("members", "there"), [(1, 0), (3, 1)])
def test_lost_store_is_left_alone(members: int, there: int) -> None:
    """Too few of its pods are there."""
    world = _full(members=members)
    _status(world, "StatefulSet", "etcd")["replicas"] = there
    assert world.plan().probes == ()
    assert _carry_out(world) == []


def test_lost_api_server_hides_no_full_store() -> None:
    world = _full()
    _status(world, "Deployment", "apiserver")["readyReplicas"] = 0
    assert _available(world)[0] == "StoreRefusesWrites"


@pytest.mark.parametrize("age_s", [20.0, -1.0])
def test_an_old_answer_does_not_count(age_s: float) -> None:
    world = _full()
    world.now_s += age_s
    assert _carry_out(world) == []


def test_other_stores_have_no_such_alarm() -> None:
    world = _unready("kine-sqlite")
    _answer(world, "392")
    assert _carry_out(world) == []
