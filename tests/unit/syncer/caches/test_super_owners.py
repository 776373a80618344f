# SPDX-License-Identifier: Apache-2.0
from syncer.caches.super_owners import SuperOwners
from tenancy.names import Refused
from tenancy.super_namespaces import SuperNamespaceOwner

RED = SuperNamespaceOwner("red", "web", "u-web", "vc-1")
GREEN = SuperNamespaceOwner("green", "web", "u-web", "vc-2")


def _answers(owners: SuperOwners, name: str) -> tuple[object, ...]:
    return owners.by_namespace.get(name), owners.or_last(name), owners.key(name), owners.key_or_last(name)


def test_whose_a_super_namespace_is_and_was() -> None:
    """Whose it was is known as long as objects of it are cached; a new owner counts at once."""
    with_objects = {"a"}
    owners = SuperOwners(with_objects.__contains__)
    for name in ("a", "b"):
        owners.set(name, RED)
        assert _answers(owners, name) == (RED, RED, "red", "red")
    assert owners.of_key("red") == [("a", RED), ("b", RED)]
    for name in ("a", "b"):
        owners.set(name, None)
    assert owners.of_key("red") == []
    assert _answers(owners, "a") == (None, RED, None, "red")
    assert _answers(owners, "b") == (None, None, None, None)
    owners.objects_changed({"a"})
    assert owners.last == {"a": RED}
    with_objects.clear()
    owners.objects_changed({"b"})
    assert owners.last == {"a": RED}
    owners.objects_changed({"a"})
    assert owners.last == {}


def test_another_owner_counts_at_once() -> None:
    owners = SuperOwners(lambda _: True)
    refused = Refused("its annotations contradict its name")
    owners.set("a", RED)
    owners.set("a", None)
    owners.set("a", GREEN)
    assert _answers(owners, "a") == (GREEN, GREEN, "green", "green")
    owners.set("a", refused)
    assert _answers(owners, "a") == (refused, refused, None, None)
    assert owners.last == {}
    assert owners.of_key("green") == []
