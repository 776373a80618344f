# SPDX-License-Identifier: Apache-2.0
"""Space is freed of a store that is full, and of none that is lost."""

from __future__ import annotations

import pytest

from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.plan import TenantPlan
from tenant_operator.core.steps import Apply, Remove
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster

ENDED = "2027-01-15T08:00:00Z"


def _unready(kind: str = "etcd") -> FakeWorld:
    """All pods run, the API server is ready, the store is not."""
    images = {"apiServer": "a:1", "controllerManager": "c:1", "etcd": "e:1", "kine": "k:1"}
    spec = {
        "kubernetesVersion": "1.34.4",
        "etcdVersion": "3.7.3",
        "images": images,
        "datastore": {"type": kind},
    }
    world = FakeWorld(virtual_cluster(), version={"metadata": {"name": "v1.34"}, "spec": spec})
    world.run()
    _status(world, "StatefulSet", "etcd")["readyReplicas"] = 0
    return world


def _full(revision: str = "392") -> FakeWorld:
    world = _unready()
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


def _end(world: FakeWorld, job: str, how: str = "Complete") -> None:
    end = {"type": how, "status": "True", "lastTransitionTime": ENDED}
    world.objects[Ref("Job", _key(world), job)]["status"] = {"conditions": [end]}


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
    assert _available(world)[0] == "WorkloadNotReady"


def _tried(revision: str = "392", how: str = "Complete") -> FakeWorld:
    world = _full(revision)
    _carry_out(world)
    _end(world, "compact", "Failed")
    _carry_out(world)
    _end(world, "free-space", how)
    return world


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
    world = _tried(how="Failed")
    world.now_s += 59.0
    _answer(world, "392")
    assert _carry_out(world) == []
    world.now_s += 1.0
    assert _carry_out(world) == ["-Job/free-space"]


@pytest.mark.parametrize(
    ("kind", "name", "field"),
    [
        ("Deployment", "apiserver", "readyReplicas"),  # the store has no majority
        ("StatefulSet", "etcd", "replicas"),  # its pod is being replaced
    ],
)
def test_lost_store_is_left_alone(kind: str, name: str, field: str) -> None:
    world = _full()
    _status(world, kind, name)[field] = 0
    assert world.plan().probes == ()
    assert _carry_out(world) == []


@pytest.mark.parametrize("age_s", [20.0, -1.0])
def test_an_old_answer_does_not_count(age_s: float) -> None:
    world = _full()
    world.now_s += age_s
    assert _carry_out(world) == []


def test_other_stores_have_no_such_alarm() -> None:
    world = _unready("kine-sqlite")
    _answer(world, "392")
    assert _carry_out(world) == []
