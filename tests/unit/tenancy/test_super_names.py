# SPDX-License-Identifier: Apache-2.0
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.super_names import MAX_CHARS, SuperNames

OWN, RIVAL, WORD = "vcs-7aad2b-acme", "vcs-1f00ba-rival", "web"


def known() -> SuperNames:
    found = SuperNames()
    for key in (OWN, RIVAL, WORD):
        for namespace in ("shop", "kube-system"):
            found.add(f"{key}-{namespace}", key, namespace)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("nothing of anybody", "nothing of anybody"),
        ('pod "vcs-7aad2b-acme-shop/a" not found', 'pod "shop/a" not found'),
        ("vcs-7aad2b-acme-later/a", "later/a"),
        ("quota of vcs-7aad2b-acme", "quota of "),
        ("conflicts with vcs-1f00ba-rival-shop/db", "conflicts with ***/db"),
        ("root vcs-1f00ba-rival", "root ***"),
        ("former vcs-1f00ba-rival-gone/db", "former ***/db"),
        ("pvc-vcs-1f00ba-rival-shop-data-0", "pvc-***-data-0"),
        ("ns_vcs-1f00ba-rival-shop_p.vcs-7aad2b-acme-shop.svc", "ns_***_p.shop.svc"),
        ("web-shop/db", "***/db"),
        ("web is a word, and web-1 a pod", "web is a word, and web-1 a pod"),
        ("vcs-1f00ba", "vcs-1f00ba"),
        # No name begins within a part of another.
        ("avcs-1f00ba-rival-shop", "avcs-1f00ba-rival-shop"),
    ],
)
def test_texts(text: str, expected: str) -> None:
    assert known().replaced(text, OWN) == expected


def test_words_of_the_tenant_stay() -> None:
    assert known().replaced("Created pod web-shop in web-shop", OWN, ("web-shop",)) == (
        "Created pod web-shop in web-shop"
    )


def test_what_is_gone_is_forgotten() -> None:
    found = known()
    for namespace in ("shop", "kube-system"):
        found.remove(f"{RIVAL}-{namespace}", RIVAL)
    assert found.replaced("vcs-1f00ba-rival-shop", OWN) == "vcs-1f00ba-rival-shop"
    for key in (OWN, WORD):
        for namespace in ("shop", "kube-system"):
            found.remove(f"{key}-{namespace}", key)
    assert found.replaced("vcs-7aad2b-acme-shop", OWN) == "vcs-7aad2b-acme-shop"


def test_long_texts_are_cut() -> None:
    found = known().replaced("a-" * MAX_CHARS, OWN)
    assert (len(found), found[-4:]) == (MAX_CHARS, " ...")


_PARTS = st.lists(
    st.sampled_from(["vcs", "1f00ba", "rival", "shop", "a", "", "-", "/", ".", "kube", "system"])
)


@given(_PARTS, st.sampled_from(["-", "", "/"]))
def test_no_others_name_stays_between_boundaries(parts: list[str], joint: str) -> None:
    found = known().replaced(joint.join(parts), OWN)
    for name in ("vcs-1f00ba-rival-shop", "vcs-1f00ba-rival-kube-system", "vcs-1f00ba-rival"):
        assert re.search(f"(?<![a-z0-9]){name}(?![a-z0-9])", found) is None
