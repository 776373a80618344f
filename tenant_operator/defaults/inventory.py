# SPDX-License-Identifier: Apache-2.0
"""What of the list was applied in a tenant: ConfigMap `defaults-inventory` of its root namespace, key
`inventory`.

It is why an object that leaves the list can be removed, and no other can: an entry has the UID of what was
applied. If it is lost, objects that the operator applied are known by their field manager and are entered
again; what had left the list before stays in the tenant.
"""

import enum

import msgspec

from tenant_operator.defaults.kinds import TenantRef

INVENTORY_KEY = "inventory"

# 500 entries of the longest names are 600 kB; a ConfigMap has 1 MiB.
_MAX_BYTES = 1 << 20


class EntryState(enum.StrEnum):
    """Whose an object of the list is now."""

    APPLIED = "Applied"
    RELEASED = "Released"
    """The tenant's: it is left as it is until its manifest changes."""


class InventoryEntry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An object that was applied, or that the tenant has taken over. `digest` is of the manifest by then."""

    api_version: str
    kind: str
    name: str
    path: str
    digest: str
    namespace: str = ""
    uid: str = ""
    state: EntryState = EntryState.APPLIED

    @property
    def ref(self) -> TenantRef:
        """The object."""
        return TenantRef(self.api_version, self.kind, self.namespace, self.name)


class Inventory(msgspec.Struct, frozen=True, omit_defaults=True):
    """`digest` is of the list that was applied to its end; empty while one is not."""

    digest: str = ""
    entries: tuple[InventoryEntry, ...] = ()

    def with_entry(self, entry: InventoryEntry) -> "Inventory":
        """With this entry in the place of the former one of its object."""
        others = tuple(each for each in self.entries if each.ref != entry.ref)
        if len(others) == len(self.entries):
            return Inventory(self.digest, (*others, entry))
        entries = tuple(entry if each.ref == entry.ref else each for each in self.entries)
        return Inventory(self.digest, entries)

    def without(self, ref: TenantRef) -> "Inventory":
        """Without the entry of this object."""
        return Inventory(self.digest, tuple(each for each in self.entries if each.ref != ref))


def write_inventory(inventory: Inventory) -> str:
    """The text that `read_inventory` reads."""
    return msgspec.json.encode(inventory).decode()


def read_inventory(text: str | None) -> Inventory:
    """What a ConfigMap has; an empty one for a text that is not an inventory."""
    if not text or len(text) > _MAX_BYTES:
        return Inventory()
    try:
        return msgspec.json.decode(text, type=Inventory)
    except (msgspec.DecodeError, RecursionError):
        return Inventory()
