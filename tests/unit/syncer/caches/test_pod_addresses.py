# SPDX-License-Identifier: Apache-2.0
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.store import Added, Deleted, Modified
from syncer.caches.cached_object import CachedMetadata, CachedObject
from syncer.caches.pod_addresses import AddressListeners, PodAddresses

_ADDRESSES = ("10.0.0.1", "10.0.0.2", "fd00::1")
_held = st.lists(st.sampled_from(_ADDRESSES), max_size=2, unique=True).map(tuple)


def _pod(addresses: tuple[str, ...]) -> CachedObject:
    found = CachedObject(CachedMetadata("p", "n", "u", "1"), b"{}")
    found.addresses = addresses
    return found


@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from([("a", "1"), ("a", "2"), ("b", "1")]),
            st.sampled_from(["put", "unreadable", "deleted"]),
            _held,
        ),
        max_size=20,
    )
)
def test_holders_are_those_of_the_last_known_pods(
    changes: list[tuple[tuple[str, str], str, tuple[str, ...]]],
) -> None:
    found, known, readable = PodAddresses(), dict[tuple[str, str], tuple[str, ...]](), set[tuple[str, str]]()
    for key, what, addresses in changes:
        old = _pod(known.get(key, ()))
        if what == "put":
            value = _pod(addresses)
            found.changed(Modified(key, old, value) if key in readable else Added(key, value))
            known[key] = addresses
            readable.add(key)
        elif what == "unreadable" and key in readable:
            assert found.changed(Deleted(key, old), is_unreadable=True) == ()
            readable.remove(key)
        elif what == "deleted" and key in known:
            if key in readable:
                found.changed(Deleted(key, old))
                readable.remove(key)
            else:
                found.unreadable_deleted(key)
            del known[key]
        for namespace in ("a", "b"):
            own = Counter(each for (place, _), held in known.items() if place == namespace for each in held)
            assert set(found.of(namespace)) == set(own)
        for address in _ADDRESSES:
            holders = {place for (place, _), held in known.items() if address in held}
            assert set(found.holders(address)) == holders


def test_a_tenant_hears_of_what_it_asked_for_alone() -> None:
    listeners = AddressListeners(most=2)
    for key, address in (("red", "10.0.0.1"), ("blue", "10.0.0.2"), ("red", "10.0.0.1")):
        listeners.follow(key, address)
    assert set(listeners.of("10.0.0.1")) == {"red"}
    assert not listeners.of("10.0.0.3")
    listeners.follow("green", "10.0.0.3")  # there is no room: it hears of all
    assert set(listeners.of("10.0.0.1")) == {"red", "green"}
    assert set(listeners.of("10.0.0.3")) == {"green"}
