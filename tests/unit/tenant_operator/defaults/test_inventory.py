# SPDX-License-Identifier: Apache-2.0
"""The inventory of what was applied, as a ConfigMap has it."""

import pytest

from tenant_operator.defaults.inventory import (
    EntryState,
    Inventory,
    InventoryEntry,
    read_inventory,
    write_inventory,
)

ONE = InventoryEntry("v1", "Namespace", "a", "/api/v1/namespaces/a", "d1", uid="u1")
PATH = "/api/v1/namespaces/a/configmaps/b"
TWO = InventoryEntry("v1", "ConfigMap", "b", PATH, "d2", "a", "u2", EntryState.RELEASED)


def test_it_is_read_as_it_was_written() -> None:
    text = write_inventory(Inventory("d", (ONE, TWO)))
    assert text == (
        '{"digest":"d","entries":[{"apiVersion":"v1","kind":"Namespace","name":"a","path":"/api/v1/namespaces/a",'
        '"digest":"d1","uid":"u1"},{"apiVersion":"v1","kind":"ConfigMap","name":"b",'
        '"path":"/api/v1/namespaces/a/configmaps/b","digest":"d2","namespace":"a","uid":"u2","state":"Released"}]}'
    )
    assert read_inventory(text) == Inventory("d", (ONE, TWO))


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"entries":[{}]}', "[" * 100_000, " " * (2 << 20)])
def test_another_text_is_an_empty_one(text: str | None) -> None:
    assert read_inventory(text) == Inventory()


def test_an_entry_replaces_the_one_of_its_object() -> None:
    changed = InventoryEntry("v1", "Namespace", "a", "/api/v1/namespaces/a", "d3", uid="u1")
    inventory = Inventory("d").with_entry(ONE).with_entry(TWO).with_entry(changed)
    assert inventory == Inventory("d", (changed, TWO))
    assert inventory.without(ONE.ref) == Inventory("d", (TWO,))
