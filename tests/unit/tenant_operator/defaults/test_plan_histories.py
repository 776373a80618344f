# SPDX-License-Identifier: Apache-2.0
"""Plans carried out against an API server that keeps owners of fields, while a tenant writes at random.

Whatever the tenant did and wherever the operator was stopped: it comes to an end, an object of the tenant's
is neither changed nor removed, and a second pass does nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tenant_operator.defaults.desired import DesiredList, DesiredObject
from tenant_operator.defaults.inventory import Inventory, read_inventory, write_inventory
from tenant_operator.defaults.kept import kept
from tenant_operator.defaults.kinds import TenantRef
from tenant_operator.defaults.plan import ApplyDefault, DefaultsStep, LiveObjectState, applied, needed, plan
from tenant_operator.model.objects import OPERATOR, Object
from tests.unit.tenant_operator.defaults import manifests

TENANT = "kubectl-edit"
FIELDS = ("x", "y")


@dataclass
class StoredConfigMap:
    """A ConfigMap: its values, and who owns each."""

    uid: str
    version: int
    data: dict[str, str]
    owners: dict[str, set[str]]
    released: bool = False

    def value(self, ref: TenantRef) -> Object:
        fields: dict[str, Object] = (
            {OPERATOR: {}} if any(OPERATOR in each for each in self.owners.values()) else {}
        )
        for key, owners in self.owners.items():
            for owner in owners:
                fields.setdefault(owner, {}).setdefault("f:data", {})[f"f:{key}"] = {}
        found = manifests.live(
            manifests.config_map(ref.name, **self.data), self.uid, fields, released=self.released
        )
        found["metadata"]["resourceVersion"] = str(self.version)
        return found


@dataclass
class FakeTenant:
    """Objects, and what the tenant made itself."""

    objects: dict[TenantRef, StoredConfigMap] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    made: int = 0

    def create(self, ref: TenantRef, data: dict[str, str], owner: str) -> None:
        self.made += 1
        stored = StoredConfigMap(f"u{self.made}", self.made, dict(data), {key: {owner} for key in data})
        self.objects[ref] = stored
        if owner == TENANT:
            self.own.add(stored.uid)

    def edit(self, ref: TenantRef, key: str, value: str) -> None:
        """As `kubectl edit` does: a field that changes is the tenant's alone."""
        stored = self.objects.get(ref)
        if stored is not None and stored.data.get(key) != value:
            self.made += 1
            stored.version = self.made
            stored.data[key] = value
            stored.owners[key] = {TENANT}

    def carry_out(self, step: DefaultsStep) -> Object | None:
        if not isinstance(step, ApplyDefault):
            stored = self.objects[step.ref]
            assert (stored.uid, str(stored.version)) == (step.uid, step.resource_version)
            assert stored.uid not in self.own
            assert not stored.released
            del self.objects[step.ref]
            return None
        ref, data = step.desired.ref, step.manifest.get("data", {})
        if ref not in self.objects:
            assert "uid" not in step.manifest["metadata"]
            self.create(ref, data, OPERATOR)
        self._merge(self.objects[ref], data)
        return self.objects[ref].value(ref)

    def _merge(self, stored: StoredConfigMap, data: dict[str, str]) -> None:
        assert stored.uid not in self.own
        assert not stored.released
        for key in [key for key, owners in stored.owners.items() if OPERATOR in owners and key not in data]:
            stored.owners[key] -= {OPERATOR}
            if not stored.owners[key]:
                del stored.owners[key], stored.data[key]
        for key, value in data.items():
            assert TENANT not in stored.owners.get(key, set())
            stored.data[key] = value
            stored.owners[key] = {OPERATOR}


@dataclass
class History:
    tenant: FakeTenant = field(default_factory=FakeTenant)
    saved: str = ""

    def run(self, objects: DesiredList, stops_after: int | None = None) -> Inventory:
        """Plan and act to the end; after `stops_after` steps it is stopped, and no inventory is saved."""
        inventory = read_inventory(self.saved)
        taken = 0
        for _ in range(10):
            live = {ref: self._state(ref, objects) for ref in needed(objects, inventory)}
            found = plan(objects, inventory, live)
            inventory = found.inventory
            for step in found.steps:
                if stops_after is not None and taken >= stops_after:
                    return inventory
                taken += 1
                answer = self.tenant.carry_out(step)
                if isinstance(step, ApplyDefault) and answer is not None:
                    inventory = inventory.with_entry(applied(step.desired, answer))
            if not found.steps:
                self.saved = write_inventory(inventory)
                return inventory
        raise AssertionError("it does not come to an end")

    def _state(self, ref: TenantRef, objects: DesiredList) -> LiveObjectState:
        stored = self.tenant.objects.get(ref)
        desired = next((each for each in objects.objects if each.ref == ref), None)
        return LiveObjectState(None if stored is None else kept(ref, stored.value(ref), desired))


def desired_map(name: str, version: int) -> DesiredObject:
    data = {key: str(version) for key in FIELDS}
    return manifests.desired(manifests.config_map(name, **data), f"d{version}")


NAMES = st.sampled_from(["a", "b", "c"])
LISTS = st.dictionaries(NAMES, st.integers(0, 2), max_size=3).map(
    lambda versions: DesiredList(tuple(desired_map(name, version) for name, version in versions.items()))
)


def edit(name: str, key: str, value: int) -> Callable[[History], None]:
    return lambda history: history.tenant.edit(_ref(name), key, str(value))


def delete(name: str) -> Callable[[History], None]:
    def act(history: History) -> None:
        history.tenant.objects.pop(_ref(name), None)

    return act


def release(name: str) -> Callable[[History], None]:
    def act(history: History) -> None:
        stored = history.tenant.objects.get(_ref(name))
        if stored is not None:
            stored.released = True
            stored.version = history.tenant.made = history.tenant.made + 1

    return act


def create(name: str) -> Callable[[History], None]:
    def act(history: History) -> None:
        if _ref(name) not in history.tenant.objects:
            history.tenant.create(_ref(name), {"x": "own"}, TENANT)

    return act


def _ref(name: str) -> TenantRef:
    return TenantRef("v1", "ConfigMap", "a", name)


ACTS = st.one_of(
    st.builds(edit, NAMES, st.sampled_from(FIELDS), st.integers(7, 9)),
    st.builds(delete, NAMES),
    st.builds(release, NAMES),
    st.builds(create, NAMES),
)
ROUNDS = st.lists(
    st.tuples(LISTS, st.one_of(st.none(), st.integers(0, 4)), st.lists(ACTS, max_size=4)), max_size=6
)


@given(rounds=ROUNDS, last=LISTS)
def test_passes_end_and_leave_the_tenants_alone(
    rounds: list[tuple[DesiredList, int | None, list[Callable[[History], None]]]], last: DesiredList
) -> None:
    history = History()
    for objects, stops_after, acts in rounds:
        history.run(objects, stops_after)
        for act in acts:
            act(history)
    inventory = history.run(last)
    assert inventory.digest == last.digest
    before = {ref: stored.value(ref) for ref, stored in history.tenant.objects.items()}
    assert history.run(last) == inventory
    assert {ref: stored.value(ref) for ref, stored in history.tenant.objects.items()} == before


@given(first=LISTS, then=LISTS, stops_after=st.integers(0, 6))
def test_a_stopped_pass_ends_in_the_same_state(
    first: DesiredList, then: DesiredList, stops_after: int
) -> None:
    """Without a tenant in between: as if it had never been stopped, apart from UIDs and versions."""
    whole, stopped = History(), History()
    for history in (whole, stopped):
        history.run(first)
    stopped.run(then, stops_after)
    for history in (whole, stopped):
        history.run(then)
    found = [{ref: stored.data for ref, stored in each.tenant.objects.items()} for each in (whole, stopped)]
    assert found[0] == found[1]
    assert found[0].keys() == {each.ref for each in then.objects}
