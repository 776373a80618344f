# SPDX-License-Identifier: Apache-2.0
"""The quota of a tenant between a write and the moment when the caches show it."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from daemonkit.kube.resources import CONFIG_MAPS, PODS
from syncer.caches.cached_object import CachedObject, parse
from syncer.caches.stored_totals import Totals
from syncer.core.objects import Object, SyncedKind
from syncer.core.plan import Create, Delete, Half, IssueTokens, Patch, Plan, Side, Wait
from syncer.policy.sync_policy import SyncPolicy
from syncer.tenant.deletions import SyncKey
from syncer.tenant.quota import QUOTA_NOT_COUNTED, TenantQuota
from tests.steps import finish, most_in_a_step

ONE = 10**9
KIND = SyncedKind(PODS, "Pod")
POLICY = SyncPolicy(quota=(("count/pods", 2 * ONE), ("requests.cpu", 4 * ONE)))
STATUS = Patch(Side.TENANT, KIND, "web", "a", "u", {"status": {"phase": "Running"}}, "status")


class _OneTenant:
    """A quota, and what the caches have."""

    def __init__(self, policy: SyncPolicy = POLICY, **overhead: Object) -> None:
        self.totals = Totals()
        self.cached: dict[str, CachedObject] = {}
        self.is_known = True
        self.quota = TenantQuota(
            {"Pod": "count/pods"}, lambda: self.totals, overhead.get, is_known=lambda: self.is_known
        )
        self.quota.start(policy)
        finish(self.quota.count(lambda _: ()))

    def admit(self, name: str, *cpus: str, found: Object | None = None) -> bool:
        return not self.quota.admit(("Pod", "web", name), _plan(name, *cpus, found=found), found).refusals

    def show(self, name: str, version: str, *cpus: str, is_relisting: bool = False) -> None:
        """The watch of the super cluster has this version."""
        cached = parse(json.dumps(_pod(name, *cpus, version=version)).encode())
        if name not in self.cached:
            self.totals.add("Pod", 1, cached.json_bytes)
        self.cached[name] = cached
        self.quota.changed(("Pod", "web", name), cached, version, is_relisting=is_relisting)

    def end(self, name: str) -> bool:
        """The watch shows the deletion; returns whether that makes room."""
        self.totals.add("Pod", -1, -self.cached.pop(name).json_bytes)
        return self.quota.changed(("Pod", "web", name), None, "", is_relisting=False)


def _pod(name: str, *cpus: str, version: str = "1", **spec: Any) -> Object:
    containers = [
        {"name": f"c{number}", "resources": {"requests": {"cpu": cpu}}} for number, cpu in enumerate(cpus)
    ]
    meta = {"namespace": "red-web", "name": name, "uid": "u", "resourceVersion": version}
    return {"metadata": meta, "spec": {"containers": containers, **spec}}


def _plan(name: str, *cpus: str, found: Object | None) -> Plan:
    if found is None:
        return Plan(Half((Create(Side.SUPER, KIND, _pod(name, *cpus)),)))
    sizes = _pod(name, *cpus)["spec"]
    resize = Patch(Side.SUPER, KIND, "red-web", name, "u", {"spec": sizes}, "resize", True)
    return Plan(Half((resize,)), Half((STATUS,)))


def test_what_was_allowed_counts_before_the_caches_show_it() -> None:
    world = _OneTenant()
    assert world.admit("a", "3")
    assert not world.admit("b", "2")
    assert world.admit("b", "1")
    assert not world.admit("c", "0")


def test_what_the_caches_show_counts_once() -> None:
    world = _OneTenant()
    assert world.admit("a", "2")
    world.quota.written(("Pod", "web", "a"), "7", None)
    world.show("a", "7", "2")
    assert world.admit("b", "2")


def test_the_end_of_an_earlier_object_is_not_that_of_the_new_one() -> None:
    world = _OneTenant()
    world.show("a", "1", "1")
    assert world.admit("a", "3")  # its name is free in the super cluster
    world.end("a")
    assert not world.admit("b", "2")
    assert world.admit("b", "1")


def test_a_size_counts_until_the_caches_have_its_version() -> None:
    """An event that was on its way has the old size."""
    world = _OneTenant()
    world.show("a", "1", "1")
    assert world.admit("a", "4", found=_pod("a", "1"))
    world.quota.written(("Pod", "web", "a"), "9", world.cached["a"])
    world.show("a", "5", "1")
    assert not world.admit("b", "1")
    world.show("a", "9", "4")
    world.show("a", "10", "1")
    assert world.admit("b", "3")


def test_a_size_in_one_piece_with_the_next_counts_no_more() -> None:
    """The caches have the kubelet's write already when the event of ours is reported."""
    world = _OneTenant()
    world.show("a", "1", "1")
    assert world.admit("a", "4", found=_pod("a", "1"))
    world.quota.written(("Pod", "web", "a"), "9", world.cached["a"])
    last = parse(json.dumps(_pod("a", "1", version="10")).encode())
    for version in ("9", "10"):
        world.quota.changed(("Pod", "web", "a"), last, version, is_relisting=False)
    assert world.admit("b", "3")


def test_a_new_list_shows_all_that_was_written() -> None:
    world = _OneTenant()
    world.show("a", "1", "1")
    assert world.admit("a", "4", found=_pod("a", "1"))
    world.quota.written(("Pod", "web", "a"), "9", world.cached["a"])
    world.show("a", "12", "2", is_relisting=True)
    assert world.admit("b", "2")


def test_what_was_refused_by_the_api_server_counts_no_more() -> None:
    world = _OneTenant()
    assert world.admit("a", "4")
    assert world.quota.forget(("Pod", "web", "a"))
    assert world.admit("b", "4")


def test_a_refused_plan_goes_up_and_deletes() -> None:
    world = _OneTenant()
    item = ("Pod", "web", "a")
    kept = world.quota.admit(item, _plan("a", "5", found=_pod("a", "1")), _pod("a", "1"))
    assert (kept.actions, kept.is_partial, len(kept.refusals)) == ((STATUS,), True, 1)
    tokens = IssueTokens("web", "a", "u", "default", "s", ())
    create = Create(Side.SUPER, KIND, _pod("a", "5"))
    assert world.quota.admit(item, Plan(Half((tokens, create))), None).actions == ()
    removal = Plan(Half((Delete(Side.SUPER, KIND, "red-web", "a", "u"),)))
    assert world.quota.admit(item, removal, _pod("a", "1")) is removal


def test_what_has_no_room_is_planned_again_once_something_ends() -> None:
    world = _OneTenant()
    world.show("a", "1", "4")
    assert not world.admit("b", "1")
    assert world.end("a")
    assert world.quota.refused_items() == [("Pod", "web", "b")]
    assert world.quota.refused_items() == []
    assert world.admit("b", "1")


def test_a_pod_that_ended_makes_room() -> None:
    world = _OneTenant()
    world.show("a", "1", "4")
    ended = parse(json.dumps(_pod("a", "4") | {"status": {"phase": "Succeeded"}}).encode())
    assert world.quota.changed(("Pod", "web", "a"), ended, ended.version, is_relisting=False)
    assert world.admit("b", "4")


def test_what_the_runtime_class_adds_counts_from_the_first() -> None:
    world = _OneTenant(kata={"cpu": "1"})
    plan = Plan(Half((Create(Side.SUPER, KIND, _pod("a", "4", runtimeClassName="kata")),)))
    refused = world.quota.admit(("Pod", "web", "a"), plan, None).refusals
    assert "requests.cpu 5 more" in refused[0].message


def test_a_large_object_may_be_written_anew_at_the_limit() -> None:
    world = _OneTenant(SyncPolicy(quota=(("vcnode.io/stored-bytes", 1_000 * ONE),)))
    world.totals = Totals(1_000, Counter({"Pod": 1}), objects=1)
    found: Object = {"metadata": {"name": "a"}, "data": {"text": "x" * 900}}
    for text, is_allowed in (("y" * 900, True), ("y" * 800, True), ("y" * 901, False)):
        patch = Patch(Side.SUPER, KIND, "red-web", "a", "u", {"data": {"text": text}})
        kept = world.quota.admit(("Pod", "web", "a"), Plan(Half((patch,))), found)
        assert (kept.refusals == ()) is is_allowed


def test_tokens_wait_for_room() -> None:
    world = _OneTenant()
    assert world.quota.wait_for_room() is None
    world.totals.stored_bytes = 128 << 20
    assert isinstance(world.quota.wait_for_room(), Wait)


def test_a_refused_resize_holds_no_image_back() -> None:
    world = _OneTenant()
    world.show("a", "1", "1", "2")
    found = _pod("a", "1", "2")
    image = Patch(
        Side.SUPER, KIND, "red-web", "a", "u", {"spec": {"containers": [{"name": "c0", "image": "i"}]}}
    )
    (resize,) = _plan("a", "9", "1", found=found).down.actions
    assert isinstance(resize, Patch)
    admitted = world.quota.admit(("Pod", "web", "a"), Plan(Half((image, resize))), found)
    (refusal,) = admitted.down.refusals
    assert "requests.cpu" in refusal.message
    given_back = {"spec": {"containers": [{"name": "c1", "resources": {"requests": {"cpu": "1"}}}]}}
    assert admitted.down.actions == (image, structs.replace(resize, body=given_back))


# ---- while what there is is being counted


def _objects(count: int, *cpus: str, **spec: Any) -> list[tuple[SyncKey, CachedObject]]:
    found = parse(json.dumps(_pod("p", *cpus, **spec)).encode())
    return [(("Pod", "web", f"p{number}"), found) for number in range(count)]


@pytest.mark.parametrize("padding", [0, 100_000])
def test_what_there_is_is_counted_in_steps(padding: int) -> None:
    """10 000 pods took 175 ms in one step, and a large pod takes as long as many."""
    world, read = _OneTenant(), list[int]()

    def objects(_: str) -> Iterator[tuple[SyncKey, CachedObject] | None]:
        for each in (*_objects(1_000, "1m", padding="x" * padding), *[None] * (0 if padding else 1_000)):
            read.append(padding)
            yield each

    world.quota.start(POLICY)
    assert most_in_a_step(world.quota.count(objects), lambda: len(read)) <= (6 if padding else 500)
    assert not world.admit("a", "3001m")
    assert world.admit("a", "3")


def test_what_grows_waits_until_what_there_is_is_counted() -> None:
    """Unknown is neither room nor none of it: it was admitted as if the tenant had nothing."""
    world = _OneTenant()
    pod, create = ("Pod", "web", "a"), _plan("a", "1", found=None)
    there = _objects(1_000, "3m")
    world.quota.start(POLICY)
    counting = world.quota.count(lambda _: there)
    next(counting)
    tokens = IssueTokens("web", "a", "u", "default", "s", ())
    kept = world.quota.admit(pod, Plan(Half((tokens, *create.down.actions)), Half((STATUS,))), None)
    assert (kept.down.actions, kept.up.actions, kept.refusals) == ((), (STATUS,), ())
    assert kept.wait is not None
    assert kept.wait.reason == QUOTA_NOT_COUNTED
    removal = Plan(Half((Delete(Side.SUPER, KIND, "red-web", "a", "u"),)))
    assert world.quota.admit(pod, removal, _pod("a")) is removal
    other = Plan(Half((Create(Side.SUPER, SyncedKind(CONFIG_MAPS, "ConfigMap"), _pod("c")),)))
    assert world.quota.admit(("ConfigMap", "web", "c"), other, None) is other
    finish(counting)
    world.is_known = False  # what came before its namespace is still reported
    assert world.quota.admit(pod, create, None).wait is not None
    world.is_known = True
    assert world.quota.admit(pod, create, None) is create


def test_what_changes_while_it_is_counted_is_counted() -> None:
    world = _OneTenant()
    objects = _objects(1_000, "1m")
    there = dict(objects)
    world.quota.start(POLICY)
    counting = world.quota.count(lambda _: ((key, found) for key, found in objects if key in there))
    next(counting)
    first, last, new = objects[0][0], objects[-1][0], ("Pod", "web", "new")
    for gone in (first, last):  # of these one is counted already
        del there[gone]
        world.quota.changed(gone, None, "", is_relisting=False)
    found = parse(json.dumps(_pod("new", "1")).encode())
    world.quota.changed(new, found, "5", is_relisting=False)
    finish(counting)
    assert not world.admit("a", "2003m")
    assert world.admit("a", "2002m")


def test_a_policy_that_comes_meanwhile_has_all_counted_anew() -> None:
    world = _OneTenant()
    world.quota.start(POLICY)
    counting = world.quota.count(lambda _: _objects(1_000, "1m"))
    next(counting)
    world.quota.start(replace(POLICY, quota=(("requests.cpu", 2 * ONE),)))
    finish(counting)
    assert [world.quota.is_counted] == [False]
    finish(world.quota.count(lambda _: _objects(1_000, "1m")))
    assert world.quota.is_counted
    assert not world.admit("a", "1001m")
    assert world.admit("a", "1")


def test_what_is_under_way_counts_by_the_next_policy() -> None:
    world = _OneTenant()
    assert world.admit("a", "3")
    world.quota.start(replace(POLICY, quota=(("count/pods", ONE), ("requests.cpu", 4 * ONE))))
    finish(world.quota.count(lambda _: ()))
    assert not world.admit("b", "2")
    assert not world.admit("b", "1")
    world.quota.start(POLICY)
    finish(world.quota.count(lambda _: ()))
    assert not world.admit("b", "2")
    assert world.admit("b", "1")


def test_nothing_grows_beside_what_was_not_summed() -> None:
    """How much CPU it takes was of no interest when it was admitted."""
    world = _OneTenant(SyncPolicy())
    for name in ("a", "b"):
        assert world.admit(name, "3")
    world.quota.start(POLICY)
    finish(world.quota.count(lambda _: ()))
    create = _plan("c", "1", found=None)
    wait = world.quota.admit(("Pod", "web", "c"), create, None).wait
    assert wait is not None
    assert wait.reason == QUOTA_NOT_COUNTED
    # An answer to its creation was lost: it is judged anew, and so is the next.
    assert world.admit("a", "3")
    assert not world.admit("b", "3")
    assert not world.admit("c", "3")
    assert world.quota.forget(("Pod", "web", "a"))  # the super cluster has refused it
    assert world.admit("c", "3")


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 3)), max_size=6),
    st.lists(st.sampled_from([POLICY, replace(POLICY, quota=(("requests.cpu", 4 * ONE),))]), max_size=3),
    st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_no_order_of_writes_and_policies_exceeds_a_limit(
    wanted: list[tuple[str, int]], policies: list[SyncPolicy], changes: list[bool]
) -> None:
    """What was admitted and is under way never exceeds a limit that all these policies have."""
    world, admitted = _OneTenant(), dict[str, int]()
    for (name, cpu), is_changed in zip(wanted, changes, strict=False):
        if policies and is_changed:
            world.quota.start(policies.pop())
            finish(world.quota.count(lambda _: ()))
        if name not in admitted and world.admit(name, str(cpu)):
            admitted[name] = cpu
        assert sum(admitted.values()) <= 4
