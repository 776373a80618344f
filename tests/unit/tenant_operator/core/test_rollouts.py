# SPDX-License-Identifier: Apache-2.0
"""A change that concerns all tenants reaches so many at a time, and stops where it does harm."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tenancy import keys
from tenant_operator.core.observed import Observed, ProbeResult
from tenant_operator.core.plan import TenantPlan
from tenant_operator.core.probes import NODES_PODS, NodesProbe
from tenant_operator.core.rollouts import LONGEST_S, REPAIR_S, is_late
from tenant_operator.core.status import status_after, status_patch
from tenant_operator.core.steps import Apply
from tenant_operator.core.tenant import plan
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core import worlds
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster


def another_version() -> Any:
    return copy.deepcopy(worlds.VERSION)


UID = virtual_cluster()["metadata"]["uid"]
FULL = ("a", "b", "c", "d", "e")
WORKLOADS = {
    "etcd": "StatefulSet",
    "apiserver": "Deployment",
    "controller-manager": "Deployment",
}


class RollingWorld(FakeWorld):
    """Others have places, too."""

    others: tuple[str, ...] = ()
    is_silent = False

    def observed(self, *, is_whole: bool = False) -> Observed:
        seen = super().observed(is_whole=is_whole)
        is_free = len(self.others) < self.settings.max_rolling
        has_place = self.since() is not None and not is_late(seen, self.key)
        return msgspec.structs.replace(seen, may_roll=has_place or is_free)

    @property
    def key(self) -> str:
        found: str = self.cluster["status"]["clusterNamespace"]
        return found

    def since(self) -> str | None:
        live = self.objects.get(Ref("Namespace", "", self.cluster.get("status", {}).get("clusterNamespace")))
        return None if live is None else live["metadata"]["annotations"].get(keys.ROLLING_SINCE)

    def workload(self, name: str) -> Object:
        return self.objects[Ref(WORKLOADS[name], self.key, name)]

    def condition(self, type_: str) -> tuple[str, str]:
        found = next(each for each in self.cluster["status"]["conditions"] if each["type"] == type_)
        return found["status"], found["reason"]

    def message(self, type_: str) -> str:
        found = next(each for each in self.cluster["status"]["conditions"] if each["type"] == type_)
        return str(found["message"])

    def finish(self, made: TenantPlan) -> bool:
        """While they are silent nodes answer nothing."""
        found = super().finish(made)
        if self.is_silent and any(each.name == "nodes" for each in made.probes):
            self.probes["nodes"] = ProbeResult(is_ok=False, at=self.now_s, detail="silent")
        return found

    def finish_status(self, made: TenantPlan) -> None:
        """Write the status, while pods stay as they are."""
        observed = self.observed()
        patch = status_patch(observed.virtual_cluster, status_after(observed, made, ()))
        if patch is not None:
            self.cluster["status"] |= patch["status"]

    def run_for(self, plans: int) -> None:
        """A plan each second."""
        for _ in range(plans):
            self.step()
            self.now_s += 1

    def step(self) -> TenantPlan:
        """One plan, carried out."""
        made = self.plan()
        for each in made.steps:
            self.carry_out(each)
        self.finish(made)
        return made


def made(**spec: Any) -> RollingWorld:
    world = RollingWorld(virtual_cluster(**spec))
    world.run()
    return world


def with_image(component: str) -> Callable[[RollingWorld], None]:
    def edit(world: RollingWorld) -> None:
        world.version = another_version()
        world.version["spec"]["images"][component] = "another:2"

    return edit


def with_authority(world: RollingWorld) -> None:
    pem = worlds.SETTINGS.vn_agent_authority_pem.replace(b"agent", b"other")
    world.settings = msgspec.structs.replace(world.settings, vn_agent_authority_pem=pem)


def with_version(world: RollingWorld) -> None:
    later = another_version()
    later["metadata"]["name"], later["spec"]["kubernetesVersion"] = "v1.35", "1.35.1"
    world.more_versions = (later,)
    world.cluster["spec"]["clusterVersionName"] = "v1.35"


COMPONENTS = {"etcd": "etcd", "apiserver": "apiServer", "controller-manager": "controllerManager"}
CHANGES = {
    "image of etcd": with_image("etcd"),
    "image of the API server": with_image("apiServer"),
    "image of the controller manager": with_image("controllerManager"),
    "authority of nodes": with_authority,
    "another version": with_version,
}


def templates(world: RollingWorld) -> dict[str, Any]:
    return {name: copy.deepcopy(world.workload(name)["spec"]["template"]) for name in WORKLOADS}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_pod_is_replaced_without_a_place(change: Callable[[RollingWorld], None]) -> None:
    world = made()
    before = templates(world)
    world.others = FULL
    change(world)
    world.run()
    assert templates(world) == before
    assert (world.condition("UpToDate"), world.condition("Ready")[0]) == (("False", "RolloutWaits"), "True")
    assert world.plan().waits_for_place
    # Nothing is written while it waits.
    assert world.run() == 0


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_place_is_taken_first_and_given_back(change: Callable[[RollingWorld], None]) -> None:
    world = made()
    before = templates(world)
    world.others = FULL[1:]
    change(world)
    made_plan = world.plan()
    while not made_plan.takes_place:
        world.step()
        made_plan = world.plan()
    kinds = [each.manifest["kind"] for each in made_plan.steps if isinstance(each, Apply)]
    assert kinds.index("Namespace") < min(kinds.index(each) for each in WORKLOADS.values() if each in kinds)
    world.run()
    assert templates(world) != before
    assert world.since() is None
    assert (world.condition("UpToDate")[0], world.condition("Ready")[0]) == ("True", "True")


def test_place_outlives_the_operator() -> None:
    """Who is killed after any step has at most as many places taken, and goes on with its own."""
    for killed_after in range(4):
        world = made()
        world.others = FULL[1:]
        with_image("apiServer")(world)
        world.run_killed(killed_after)
        assert (world.since(), world.condition("UpToDate")) == (None, ("True", "UpToDate"))


def test_broken_tenant_keeps_its_place() -> None:
    """Its pods do not get ready: the wave stops with as many as there are places."""
    world = made()
    with_image("apiServer")(world)
    while world.since() is None:
        world.step()
    for _ in range(5):
        world.workload("apiserver")["status"] |= {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 1}
        made_plan = world.plan()
        assert made_plan.steps == ()
    assert world.since() == "2027-01-15T08:00:00Z"
    # What mends it is not held, however many others have places.
    world.others = (*FULL, "f")
    world.version["spec"]["images"]["apiServer"] = "mended:3"
    world.run()
    assert world.workload("apiserver")["spec"]["template"]["spec"]["containers"][0]["image"] == "mended:3"
    assert world.since() is None


@pytest.mark.parametrize("name", WORKLOADS)
def test_pods_that_stay_unready_have_their_place_for_a_time(name: str) -> None:
    """Then others may take it. What mends these pods is not held; what is well waits for a place again."""
    world = made()
    with_image(COMPONENTS[name])(world)
    while world.since() is None:
        world.step()
    broken = {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 1}
    world.workload(name)["status"] |= broken
    begun = world.now_s
    world.others = FULL
    for late_s, reason in ((LONGEST_S - 1, "ComponentNotReady"), (LONGEST_S, "RolloutLate")):
        world.now_s = begun + late_s
        world.finish_status(world.plan())
        assert world.condition("UpToDate")[1] == reason
    assert f"{name} has 1 of 1 replicas ready" in world.message("UpToDate")
    images = dict.fromkeys(COMPONENTS.values(), "mended:3")
    world.version["spec"]["images"] = images
    before = templates(world)
    for step in world.plan().steps:
        world.carry_out(step)
    changed = [each for each, template in templates(world).items() if template != before[each]]
    assert changed == [name]
    # Its pods are ready now, and nodes answer: the place is given back before another one is asked for.
    world.run()
    assert world.since() is None
    assert world.condition("UpToDate") == ("False", "RolloutWaits")
    world.others = ()
    world.run()
    assert (world.since(), world.condition("UpToDate")) == (None, ("True", "UpToDate"))


def test_late_tenant_takes_a_place_anew() -> None:
    """Its pods are ready and nodes are silent: another change of it comes in its turn, with another time."""
    world = made()
    world.now_s += 6000
    world.run_for(2)
    world.is_silent = True
    with_image("apiServer")(world)
    world.run_for(int(LONGEST_S) + 5)
    first = world.since()
    assert (first, world.condition("UpToDate")[1]) == ("2027-01-15T09:40:02Z", "RolloutLate")
    with_image("controllerManager")(world)
    world.others = FULL
    assert world.plan().waits_for_place
    world.others = ()
    world.step()
    assert world.since() == "2027-01-15T09:50:07Z"
    # It was not Ready before this change: with ready pods it is as well as it was.
    world.run_for(3)
    assert world.since() is None


def test_who_waits_for_a_person_gives_its_place_back() -> None:
    """Its store is named nowhere any more: nothing is done before somebody has changed that."""
    world = RollingWorld(virtual_cluster())
    world.version = another_version()
    world.version["spec"]["datastore"] = {"type": "shared-etcd", "secretName": "store"}
    world.settings = msgspec.structs.replace(
        world.settings, store_cidrs=("198.51.100.0/28",), store_endpoints=("https://etcd.example:2379",)
    )
    world.run()
    key = next(ref.name for ref in world.objects if ref.kind == "Namespace")
    metadata: Object = {"namespace": key, "name": "store-credentials", "uid": "x", "resourceVersion": "1"}
    metadata |= {"labels": {"tenancy.x-k8s.io/vcuid": UID, "vcnode.io/managed-by": "vc-operator"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {}}
    world.objects[Ref("Secret", key, "store-credentials")] = secret
    world.run()
    world.version["spec"]["images"]["apiServer"] = "another:2"
    while world.since() is None:
        world.step()
    world.workload("apiserver")["status"] |= {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 0}
    world.settings = msgspec.structs.replace(world.settings, store_endpoints=())
    for step in world.plan().steps:
        world.carry_out(step)
    assert world.since() is None


@pytest.mark.parametrize(("was_ready", "is_kept"), [(True, True), (False, False)])
def test_silent_nodes_keep_the_place_of_who_was_ready(*, was_ready: bool, is_kept: bool) -> None:
    """An authority that no node has: API servers get ready, and people see nothing of their pods."""
    world = made()
    world.is_silent = not was_ready
    world.now_s += 6000
    world.run_for(2)
    assert world.condition("Ready")[0] == ("True" if was_ready else "False")
    world.is_silent = True
    with_authority(world)
    world.run_for(12)
    assert (world.since() is not None, world.condition("Ready")[0]) == (is_kept, "False")
    assert world.workload("apiserver")["metadata"]["generation"] > 1


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_answer_of_nodes_before_the_last_pod_does_not_count(change: Callable[[RollingWorld], None]) -> None:
    """A place is given back by an answer that was asked for when all pods were new and ready, whatever was
    asked before, and however often."""
    world = made()
    world.now_s += 600
    change(world)
    while world.since() is None:
        world.step()
    for _ in range(60):
        made_plan = world.plan()
        for each in made_plan.steps:
            world.carry_out(each)
        if world.since() is None:
            break
        # Nodes answer at once, also while an API server of before may run still.
        world.finish(made_plan)
        world.now_s += 1
    generations = [str(world.workload(name)["metadata"]["generation"]) for name in WORKLOADS]
    assert world.since() is None
    assert world.probes["nodes"].facts[NODES_PODS] == f"2027-01-15T08:10:00Z/{'/'.join(generations)}"


def test_nodes_are_asked_once_all_pods_are_new() -> None:
    world = made()
    with_image("apiServer")(world)
    while world.since() is None:
        world.step()
    asked_of = []
    for is_ready in (False, False, True):
        if not is_ready:
            world.workload("apiserver")["status"] |= {"replicas": 2, "updatedReplicas": 1}
        made_plan = world.plan()
        asked_of += [each.pods for each in made_plan.probes if isinstance(each, NodesProbe)]
        world.finish(made_plan)
        world.now_s += 1
        assert world.since() is not None
    assert asked_of == ["2027-01-15T08:00:00Z/1/2/1"]


def digest(world: RollingWorld) -> str:
    return hashlib.sha256(world.settings.vn_agent_authority_pem).hexdigest()


def authority(world: RollingWorld) -> str:
    found: str = world.cluster["status"]["nodesAuthority"]
    return found


def test_status_has_the_authority_that_pods_run_by() -> None:
    """It changes behind the last pod of before: what was not looked at, waits or is late has the former."""
    world = made()
    former = digest(world)
    assert authority(world) == former
    with_authority(world)
    assert authority(world) == former
    world.others = FULL
    world.run()
    assert (authority(world), world.condition("UpToDate")[1]) == (former, "RolloutWaits")
    world.others = ()
    while world.since() is None:
        world.step()
    for _ in range(3):
        world.workload("apiserver")["status"] |= {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 2}
        world.finish_status(world.plan())
        assert authority(world) == former
    world.run()
    assert authority(world) == digest(world) != former


@pytest.mark.parametrize("killed_after", range(6))
def test_authority_in_the_status_is_never_ahead(killed_after: int) -> None:
    """Nor is it after a restart of the operator between any two steps."""
    world = made()
    with_authority(world)
    steps = 0
    for _ in range(12):
        made_plan = world.plan()
        for each in made_plan.steps[: max(killed_after - steps, 0) or None]:
            world.carry_out(each)
        steps += len(made_plan.steps)
        world.finish_status(made_plan)
        trusted = world.objects[Ref("ConfigMap", world.key, "authorities")]["data"]["kubelet-serving-ca.crt"]
        if authority(world) == digest(world):
            assert trusted.encode() == world.settings.vn_agent_authority_pem
            assert world.workload("apiserver")["metadata"]["generation"] > 1
        world.make_ready()
        world.finish(world.plan())
    assert authority(world) == digest(world)


def test_who_sleeps_wakes_with_the_authority_of_its_status() -> None:
    world = made()
    world.cluster["metadata"]["annotations"] = {keys.SLEEP_REQUESTED_AT: "2027-01-15T08:00:00Z"}
    world.run()
    with_authority(world)
    world.run()
    assert authority(world) == digest(world)
    world.cluster["metadata"]["annotations"][keys.WAKE_REQUESTED_AT] = "2027-01-15T08:00:00Z"
    while not world.workload("apiserver")["spec"]["replicas"]:
        world.step()
    trusted = world.objects[Ref("ConfigMap", world.key, "authorities")]["data"]["kubelet-serving-ca.crt"]
    assert trusted.encode() == world.settings.vn_agent_authority_pem


def test_sleep_gives_the_place_back() -> None:
    """A person excludes a tenant that would hold up others."""
    world = made()
    with_image("apiServer")(world)
    while world.since() is None:
        world.step()
    world.cluster["metadata"]["annotations"] = {keys.SLEEP_REQUESTED_AT: "2027-01-15T08:00:00Z"}
    world.run()
    assert (world.since(), world.condition("Sleeping")[0]) == (None, "True")


def test_sleep_gives_back_the_place_of_pods_on_a_dead_node() -> None:
    world = made()
    with_image("etcd")(world)
    while world.since() is None:
        world.step()
    world.cluster["metadata"]["annotations"] = {keys.SLEEP_REQUESTED_AT: "2027-01-15T08:00:00Z"}
    for _ in range(5):
        world.step()
        world.workload("etcd")["status"] |= {"replicas": 1, "updatedReplicas": 0, "readyReplicas": 0}
    assert world.since() is None


def test_place_of_a_clock_that_was_ahead_is_given_back() -> None:
    world = made()
    world.objects[Ref("Namespace", "", world.key)]["metadata"]["annotations"][keys.ROLLING_SINCE] = (
        "2030-01-15T08:00:00Z"
    )
    world.run()
    assert world.since() is None


def test_rotation_needs_no_place() -> None:
    """People of a tenant may ask for one: it must not wait for others, nor hold them up."""
    world = made()
    world.others = FULL
    world.cluster["metadata"]["annotations"] = {keys.ROTATE_PREFIX + "front-proxy-ca": "one"}
    world.run()
    assert world.since() is None
    assert world.condition("UpToDate") == ("True", "UpToDate")
    secret = world.objects[Ref("Secret", world.key, "front-proxy-ca")]
    assert secret["metadata"]["annotations"][keys.ROTATION_TOKEN] == "one"


def lose(name: str) -> Callable[[RollingWorld], None]:
    def act(world: RollingWorld) -> None:
        del world.objects[Ref(WORKLOADS[name], world.key, name)]

    return act


def down(world: RollingWorld, name: str) -> None:
    world.workload(name)["status"]["readyReplicas"] = 0
    made_plan = world.plan()
    world.finish_status(made_plan)


def crash(name: str) -> Callable[[RollingWorld], None]:
    def act(world: RollingWorld) -> None:
        down(world, name)
        world.now_s += REPAIR_S
        with_image(COMPONENTS[name])(world)

    return act


def scale(world: RollingWorld) -> None:
    world.version = another_version()
    world.version["spec"]["classes"] = {"small": {"apiServer": {"replicas": 2}}}


def sleep_and_wake(world: RollingWorld) -> None:
    world.cluster["metadata"]["annotations"] = {keys.SLEEP_REQUESTED_AT: "2027-01-15T08:00:00Z"}
    world.run()
    with_image("apiServer")(world)
    world.cluster["metadata"]["annotations"][keys.WAKE_REQUESTED_AT] = "2027-01-15T08:00:00Z"


NEVER_HELD = {
    **{f"lost {name}": lose(name) for name in WORKLOADS},
    **{f"mended {name}": crash(name) for name in WORKLOADS},
    "woken": sleep_and_wake,
}


@pytest.mark.parametrize("act", NEVER_HELD.values(), ids=NEVER_HELD)
def test_no_repair_and_no_start_is_held(act: Callable[[RollingWorld], None]) -> None:
    world = made()
    world.others = FULL
    act(world)
    world.run()
    assert world.since() is None
    assert (world.condition("UpToDate")[0], world.condition("Ready")[0]) == ("True", "True")


@pytest.mark.parametrize("name", WORKLOADS)
def test_pods_that_are_late_are_no_repair(name: str) -> None:
    """On nodes with too much to do, all tenants would be changed at once."""
    world = made()
    world.others = FULL
    before = templates(world)
    down(world, name)
    with_image(COMPONENTS[name])(world)
    world.now_s += REPAIR_S - 1
    found = world.plan()
    assert found.waits_for_place
    for step in found.steps:
        world.carry_out(step)
    assert templates(world) == before


def test_creation_is_not_held() -> None:
    world = RollingWorld(virtual_cluster())
    world.others = FULL
    world.run()
    assert (world.since(), world.condition("Ready")[0]) == (None, "True")


def test_one_component_at_a_time() -> None:
    """A new operator changes all: etcd is ready again before an API server ends."""
    world = made()
    world.version = another_version()
    world.version["spec"]["images"] = {"apiServer": "a:2", "controllerManager": "c:2", "etcd": "e:2"}
    changed = []
    for _ in range(12):
        made_plan = plan(world.observed(), world.settings)
        changed += [
            [
                each.manifest["metadata"]["name"]
                for each in made_plan.steps
                if isinstance(each, Apply) and each.manifest["kind"] in WORKLOADS.values()
            ]
        ]
        world.step()
    assert [each for each in changed if each] == [["etcd"], ["apiserver"], ["controller-manager"]]
