# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from devkit.fake_iptables import FakeIptables
from ruleset.document import Document
from ruleset.installed.rules import InstalledRules, expected, nothing_installed, read_installed, state_digest
from ruleset.model import Family
from ruleset.names import Backend
from ruleset.restore.script import full_restore
from tests.unit.ruleset.models import RENDERERS, everything, ruleset, services

RULESET = ruleset(RENDERERS[Backend.IPTABLES](everything(Family.IPV4)))
(DOCUMENT,) = RULESET.documents


def _guest() -> FakeIptables:
    guest = FakeIptables()
    guest.restore("*nat\n:MESH - [0:0]\n-A OUTPUT -p tcp -j MESH\nCOMMIT\n")
    guest.restore(full_restore(DOCUMENT, nothing_installed(Family.IPV4, Backend.IPTABLES), RULESET.digest))
    return guest


def _installed(guest: FakeIptables) -> InstalledRules:
    return read_installed(guest.save(), Family.IPV4, Backend.IPTABLES)


def test_applied_ruleset_is_read_back() -> None:
    installed = _installed(_guest())
    assert installed == expected(DOCUMENT, RULESET.digest)
    assert installed.document() == DOCUMENT
    assert installed.matches(DOCUMENT)
    assert installed.is_marked(RULESET.digest)
    assert not installed.is_empty


def test_fresh_guest_has_none_of_our_rules() -> None:
    installed = _installed(FakeIptables())
    assert installed == nothing_installed(Family.IPV4, Backend.IPTABLES)
    assert installed.is_empty
    assert installed.marker == ""
    assert not installed.is_marked(RULESET.digest)


@pytest.mark.parametrize("backend", Backend)
def test_expected_rules_have_a_marker_on_request(backend: Backend) -> None:
    document = RENDERERS[backend](everything(Family.IPV6))
    assert expected(document, "ab" * 32).marker == "VCN-MARK-abababababababab"
    assert expected(document).marker == ""
    assert expected(document, "ab" * 32).document() == document


@pytest.mark.parametrize(
    ("in_filter", "in_nat", "marker"),
    [
        (("1",), ("1",), "VCN-MARK-1"),
        (("1",), ("2",), ""),
        (("1",), (), ""),
        (("1", "2"), ("1", "2"), ""),
    ],
)
def test_marker_must_be_the_same_in_all_tables(
    in_filter: tuple[str, ...], in_nat: tuple[str, ...], marker: str
) -> None:
    names = [*(f"filter/VCN-MARK-{one}" for one in in_filter), *(f"nat/VCN-MARK-{one}" for one in in_nat)]
    installed = InstalledRules(Family.IPV4, Backend.IPTABLES, dict.fromkeys(names, ()), {})
    assert installed.marker == marker


DRIFT = {
    "a hook is gone": "*nat\n-D OUTPUT -j VCN-SERVICES\nCOMMIT\n",
    "a hook is there twice": "*filter\n-A OUTPUT -m conntrack --ctstate NEW -j VCN-SERVICES\nCOMMIT\n",
    "a mesh stands behind our hook": "*nat\n-A OUTPUT -p tcp -j MESH\nCOMMIT\n",
    "another hook": "*nat\n-A PREROUTING -j VCN-SERVICES\nCOMMIT\n",
    "a chain is empty": "*filter\n:VCN-SERVICES - [0:0]\nCOMMIT\n",
    "a rule is added": "*nat\n-A VCN-SERVICES -j RETURN\nCOMMIT\n",
    "a chain is added": "*nat\n:VCN-OTHER - [0:0]\nCOMMIT\n",
}


@pytest.mark.parametrize("change", DRIFT.values(), ids=DRIFT)
def test_change_of_our_rules_is_drift(change: str) -> None:
    guest = _guest()
    before = state_digest([_installed(guest)])
    guest.restore(change)
    assert not _installed(guest).matches(DOCUMENT)
    assert state_digest([_installed(guest)]) != before


def test_flushed_table_is_drift() -> None:
    guest = _guest()
    before = state_digest([_installed(guest)])
    guest.restore("*nat\nCOMMIT\n", noflush=False)
    assert not _installed(guest).matches(DOCUMENT)
    assert not _installed(guest).is_marked(RULESET.digest), "a marker in one table is not enough"
    assert state_digest([_installed(guest)]) != before


@pytest.mark.parametrize(
    "change",
    [
        "*nat\n-A MESH -j RETURN\nCOMMIT\n",
        "*nat\n:OTHER - [0:0]\nCOMMIT\n",
        "*filter\n-A OUTPUT -j ACCEPT\nCOMMIT\n",
        "*filter\n-A INPUT -j DROP\nCOMMIT\n",
    ],
)
def test_change_of_foreign_rules_is_not_drift(change: str) -> None:
    guest = _guest()
    before = state_digest([_installed(guest)])
    guest.restore(change)
    assert _installed(guest).matches(DOCUMENT)
    assert state_digest([_installed(guest)]) == before


def test_counters_are_not_drift() -> None:
    text = _guest().save()
    counted = "".join(
        f"[5:300] {line}\n" if line.startswith("-A") else f"{line}\n" for line in text.splitlines()
    )
    one, other = (read_installed(t, Family.IPV4, Backend.IPTABLES) for t in (text, counted))
    assert state_digest([one]) == state_digest([other])


def test_state_digest_separates_names_and_lines() -> None:
    def of(objects: dict[str, tuple[str, ...]]) -> str:
        return state_digest([InstalledRules(Family.IPV4, Backend.IPTABLES, objects, {})])

    a = of({"nat/VCN-A": ("x",), "nat/VCN-B": ()})
    assert len({a, of({"nat/VCN-A": (), "nat/VCN-B": ("x",)}), of({"nat/VCN-A": ("x nat/VCN-B 0",)})}) == 3
    installed = expected(DOCUMENT)
    assert state_digest([installed]) != state_digest([replace(installed, shadowed=frozenset({"nat/OUTPUT"}))])
    six = expected(RENDERERS[Backend.NFT](services(2, 2, Family.IPV6)))
    assert state_digest([installed, six]) == state_digest([six, installed])


def test_nft_rules_have_no_hooks() -> None:
    document = Document(Family.IPV4, Backend.NFT, {"chain a": ("drop",)})
    listed = "table ip vcnode {\n\tchain a {\n\t\tdrop\n\t}\n}\n"
    assert read_installed(listed, Family.IPV4, Backend.NFT) == expected(document)
