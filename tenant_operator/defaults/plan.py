# SPDX-License-Identifier: Apache-2.0
"""What is to be applied and removed in a tenant, given its list, what was applied before, and what is there.

Whose an object is:
- One that the operator has applied follows the list: it is applied again when its manifest changes, without
  the fields that the tenant has taken over.
- The tenant's is one that it annotated `vcnode.io/managed: "false"`, whose last field of ours it took over,
  that was there before the operator's, or that it has deleted. It is left as it is. A deleted one is made
  again once its manifest in the list changes.
- Essential ones are applied whatever the tenant did.

What leaves the list is removed if it is still the object of the UID that was applied, and not the tenant's.
Never removed are Namespaces and PersistentVolumeClaims, and CustomResourceDefinitions while objects of
theirs are there.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from tenant_operator.defaults.desired import DesiredList, DesiredObject, is_definition
from tenant_operator.defaults.field_owners import (
    has_fields,
    is_applied_by_us,
    is_released,
    without_taken_fields,
)
from tenant_operator.defaults.inventory import EntryState, Inventory, InventoryEntry
from tenant_operator.defaults.kept import is_established
from tenant_operator.defaults.kinds import TenantRef, kinds_of
from tenant_operator.model.objects import Object

_HOLDS_DATA = frozenset({"Namespace", "PersistentVolumeClaim"})


class LiveObjectState(msgspec.Struct, frozen=True):
    """One object of the tenant: `value` is None if it does not exist.

    `has_objects`: of a CustomResourceDefinition, whether there is an object of it; None if that was not
    asked.
    """

    value: Object | None = None
    has_objects: bool | None = None


class ApplyDefault(msgspec.Struct, frozen=True):
    """Server-side apply of an object.

    `forces` takes fields from others; without it the API server refuses where a client made the object
    meanwhile.
    """

    desired: DesiredObject
    manifest: Object
    forces: bool


class RemoveDefault(msgspec.Struct, frozen=True):
    """Delete the object of this UID and version."""

    ref: TenantRef
    path: str
    uid: str
    resource_version: str


DefaultsStep = ApplyDefault | RemoveDefault


class DefaultsPlan(msgspec.Struct, frozen=True):
    """`steps` in their order. `inventory` is what is to be kept when no step is carried out.

    `waits_for` names the objects without which the rest cannot go on. `problems` are for people: what stays,
    and why.
    """

    steps: tuple[DefaultsStep, ...]
    inventory: Inventory
    waits_for: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def needed(desired: DesiredList, inventory: Inventory) -> dict[TenantRef, str]:
    """The paths of all objects that `plan` has to be given, by what they are."""
    found = {entry.ref: entry.path for entry in inventory.entries}
    found.update({each.ref: each.path for each in desired.objects})
    return found


def plan(
    desired: DesiredList,
    inventory: Inventory,
    live: Mapping[TenantRef, LiveObjectState],
    applied_now: Collection[TenantRef] = (),
) -> DefaultsPlan:
    """The next steps. Without steps and without what is waited for, the inventory has the list's digest.

    `applied_now` were applied in this pass: what the API server has made of them is not compared again.
    """
    draft = _Draft(inventory, live, applied_now)
    missing = _missing_definitions(desired.objects, live)
    for each in desired.objects:
        definition = missing.get((each.ref.api_version, each.ref.kind))
        if definition is not None:
            draft.waits_for[f"{definition} to be established"] = None
            continue
        draft.bring(each)
    refs = {each.ref for each in desired.objects}
    for entry in reversed(inventory.entries):
        if entry.ref not in refs:
            draft.remove(entry)
    is_done = not (draft.steps or draft.waits_for)
    digest = desired.digest if is_done else ""
    return DefaultsPlan(
        tuple(draft.steps),
        Inventory(digest, draft.inventory.entries),
        tuple(draft.waits_for),
        (*desired.problems, *draft.problems),
    )


def applied(desired: DesiredObject, answer: Object) -> InventoryEntry:
    """The entry of an object that the API server has taken."""
    return _entry(desired, _uid(answer), EntryState.APPLIED)


class _Draft:
    def __init__(
        self,
        inventory: Inventory,
        live: Mapping[TenantRef, LiveObjectState],
        applied_now: Collection[TenantRef],
    ) -> None:
        self.inventory = inventory
        self.steps: list[DefaultsStep] = []
        self.waits_for: dict[str, None] = {}
        self.problems: list[str] = []
        self._live = live
        self._applied_now = applied_now
        self._entries = {entry.ref: entry for entry in inventory.entries}

    def bring(self, desired: DesiredObject) -> None:
        """Have the tenant's object as the list has it, if it is not the tenant's own."""
        state = self._live.get(desired.ref)
        entry = self._entries.get(desired.ref)
        if state is None:
            self.waits_for[f"{desired.ref} to be read"] = None
        elif state.value is not None and _is_ending(state.value):
            self.waits_for[f"{desired.ref} to be deleted"] = None
        elif desired.is_essential:
            self._bring_essential(desired, entry, state.value)
        elif entry is not None and entry.digest == desired.digest:
            self._keep(desired, entry, state.value)
        elif state.value is None:
            self._apply(desired, desired.manifest, forces=False)
        elif is_released(state.value) or not _is_ours(entry, state.value):
            self._release(desired, entry)
        else:
            self._bring_ours(desired, state.value)

    def remove(self, entry: InventoryEntry) -> None:
        """Remove what has left the list."""
        state = self._live.get(entry.ref)
        if state is None:
            self.waits_for[f"{entry.ref} to be read"] = None
            return
        live = state.value
        if live is None or entry.state is EntryState.RELEASED or not _is_removable(entry, live):
            self.inventory = self.inventory.without(entry.ref)
        elif entry.kind in _HOLDS_DATA:
            self.problems.append(
                f"{entry.ref} has left the list and stays, as it may hold data: delete it by hand"
            )
            self.inventory = self.inventory.without(entry.ref)
        elif _is_ending(live):
            self.waits_for[f"{entry.ref} to be deleted"] = None
        elif is_definition(entry.ref) and state.has_objects is not False:
            # The entry stays, and with it the next change of the list looks again.
            self.problems.append(
                f"{entry.ref} has left the list and stays, as there are objects of it: delete those"
            )
        else:
            self.steps.append(RemoveDefault(entry.ref, entry.path, entry.uid, _version(live)))

    def _bring_essential(
        self, desired: DesiredObject, entry: InventoryEntry | None, live: Object | None
    ) -> None:
        is_noted = entry is not None and entry.digest == desired.digest and entry.uid == _uid(live)
        is_as_desired = desired.ref in self._applied_now or _covers(live, desired.manifest)
        if live is not None and is_noted and is_as_desired:
            return
        self._apply(desired, desired.manifest, forces=True)

    def _bring_ours(self, desired: DesiredObject, live: Object) -> None:
        manifest = without_taken_fields(desired.manifest, live)
        if not has_fields(manifest) and has_fields(desired.manifest):
            self._release(desired, self._entries.get(desired.ref))
            return
        # If it changes before this arrives, the API server refuses, and it is read again.
        identity = {"uid": _uid(live), "resourceVersion": _version(live)}
        manifest = {**manifest, "metadata": {**manifest["metadata"], **identity}}
        self._apply(desired, manifest, forces=True)

    def _keep(self, desired: DesiredObject, entry: InventoryEntry, live: Object | None) -> None:
        """Note what the tenant has done with an object whose manifest has not changed."""
        if entry.state is EntryState.APPLIED and (
            live is None or _uid(live) != entry.uid or is_released(live) or not is_applied_by_us(live)
        ):
            self._release(desired, entry)

    def _release(self, desired: DesiredObject, entry: InventoryEntry | None) -> None:
        if entry is None and desired.ref.kind != "Namespace":
            self.problems.append(f"{desired.ref} was there before, and stays the tenant's")
        uid = "" if entry is None else entry.uid
        self.inventory = self.inventory.with_entry(_entry(desired, uid, EntryState.RELEASED))

    def _apply(self, desired: DesiredObject, manifest: Object, *, forces: bool) -> None:
        self.steps.append(ApplyDefault(desired, manifest, forces))


def _missing_definitions(
    objects: Sequence[DesiredObject], live: Mapping[TenantRef, LiveObjectState]
) -> dict[tuple[str, str], TenantRef]:
    """The custom kinds of the list that the API server does not serve yet, with their definitions."""
    found = {}
    for each in objects:
        if is_definition(each.ref):
            state = live.get(each.ref)
            if state is None or not is_established(state.value):
                custom = kinds_of([each.manifest]).keys() - kinds_of([]).keys()
                found.update(dict.fromkeys(custom, each.ref))
    return found


def _is_ours(entry: InventoryEntry | None, live: Object) -> bool:
    """Whether the operator has applied it: that is in its fields, also where the inventory was lost."""
    is_another = entry is not None and bool(entry.uid) and entry.uid != _uid(live)
    return is_applied_by_us(live) and not is_another


def _is_removable(entry: InventoryEntry, live: Object) -> bool:
    """Whether it is the object that was applied, and not the tenant's since."""
    return _uid(live) == entry.uid and is_applied_by_us(live) and not is_released(live)


def _entry(desired: DesiredObject, uid: str, state: EntryState) -> InventoryEntry:
    ref = desired.ref
    return InventoryEntry(
        ref.api_version, ref.kind, ref.name, desired.path, desired.digest, ref.namespace, uid, state
    )


def _covers(live: Any, desired: Any) -> bool:
    """Whether all that is desired is there; lists have as many elements, and no others."""
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(
            key in live and _covers(live[key], each) for key, each in desired.items()
        )
    if isinstance(desired, list):
        return isinstance(live, list) and len(live) == len(desired) and all(map(_covers, live, desired))
    return bool(live == desired)


def _uid(live: Object | None) -> str:
    return _text(live, "uid")


def _version(live: Object) -> str:
    return _text(live, "resourceVersion")


def _is_ending(live: Object) -> bool:
    return bool(_text(live, "deletionTimestamp"))


def _text(live: Object | None, key: str) -> str:
    metadata = (live or {}).get("metadata")
    found = metadata.get(key) if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else ""
