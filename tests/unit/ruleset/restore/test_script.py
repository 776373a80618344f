# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devkit.fake_iptables import FakeIptables, RestoreRefusedError
from ruleset.delta import BaseMismatch, document_difference
from ruleset.document import Document, Ruleset
from ruleset.installed.rules import InstalledRules, expected, nothing_installed, read_installed
from ruleset.model import Family, GuestRules
from ruleset.names import Backend
from ruleset.render.iptables import render
from ruleset.render.nft import render as render_nft
from ruleset.restore.script import delta_restore, full_restore, removal
from tests.unit.ruleset.models import everything, ruleset, services

FIRST = ruleset(render(services(6, 2, affinity_s=60)))
SECOND = ruleset(render(services(6, 2, fewer=[1], refused=[2], moved=[3])))
MESH = "*nat\n:MESH - [0:0]\n-A OUTPUT -p tcp -j MESH\n-A MESH -j RETURN\nCOMMIT\n"

# Changes that other programs may make in a guest, also to our rules.
DAMAGE = (
    "*nat\n-D OUTPUT -j VCN-SERVICES\nCOMMIT\n",
    "*nat\n-A OUTPUT -j VCN-SERVICES\nCOMMIT\n",
    "*nat\n-A PREROUTING -j VCN-SERVICES\nCOMMIT\n",
    "*nat\n-A OUTPUT -p udp -j MESH\nCOMMIT\n",
    "*nat\n:LOOP - [0:0]\n-A LOOP -j VCN-SERVICES\nCOMMIT\n",
    "*nat\n:VCN-SERVICES - [0:0]\nCOMMIT\n",
    "*nat\n:VCN-OTHER - [0:0]\n-A VCN-SERVICES -j VCN-OTHER\nCOMMIT\n",
    "*filter\n-D OUTPUT -m conntrack --ctstate NEW -j VCN-SERVICES\nCOMMIT\n",
    "*filter\n:VCN-SERVICES - [0:0]\nCOMMIT\n",
    "*filter\n-A OUTPUT -p icmp -j VCN-SERVICES\nCOMMIT\n",
)


def _guest() -> FakeIptables:
    guest = FakeIptables()
    guest.restore(MESH)
    return guest


def _installed(guest: FakeIptables) -> InstalledRules:
    return read_installed(guest.save(), Family.IPV4, Backend.IPTABLES)


def _foreign(guest: FakeIptables) -> dict[tuple[str, str], list[str]]:
    return {
        (table, chain): [rule for rule in rules if "VCN-" not in rule]
        for table, chains in guest.tables.items()
        for chain, rules in chains.items()
        if not chain.startswith("VCN-")
    }


@given(st.lists(st.sampled_from(DAMAGE), max_size=6), st.sampled_from([FIRST, SECOND, None]))
def test_one_text_applies_first_and_repairs_any_damage(
    damage: list[str], started_with: Ruleset | None
) -> None:
    guest = _guest()
    if started_with is not None:
        (document,) = started_with.documents
        guest.restore(full_restore(document, _installed(guest), started_with.digest))
    for change in damage:
        try:
            guest.restore(change)
        except RestoreRefusedError:
            continue  # this damage cannot be done twice
    foreign = _foreign(guest)
    guest.restore(full_restore(SECOND.documents[0], _installed(guest), SECOND.digest))
    installed = _installed(guest)
    assert installed == expected(SECOND.documents[0], SECOND.digest)
    assert installed.matches(SECOND.documents[0])
    assert _foreign(guest) == foreign, "foreign rules are unchanged and in their places"
    again = guest.save()
    guest.restore(full_restore(SECOND.documents[0], installed, SECOND.digest))
    assert guest.save() == again, "applied twice it changes nothing"
    guest.restore(removal(_installed(guest)))
    assert _installed(guest).is_empty
    assert _foreign(guest) == foreign
    assert removal(_installed(guest)) == ""


def test_flushed_tables_are_repaired() -> None:
    guest = _guest()
    guest.restore(full_restore(FIRST.documents[0], _installed(guest), FIRST.digest))
    for table in ("nat", "filter"):
        guest.restore(f"*{table}\nCOMMIT\n", noflush=False)
        guest.restore(full_restore(FIRST.documents[0], _installed(guest), FIRST.digest))
        assert _installed(guest) == expected(FIRST.documents[0], FIRST.digest)


def test_deltas_lead_there_and_back() -> None:
    guest = _guest()
    guest.restore(full_restore(FIRST.documents[0], _installed(guest), FIRST.digest))
    for old, new in ((FIRST, SECOND), (SECOND, FIRST)):
        (before,), (after,) = old.documents, new.documents
        delta = document_difference(before, after)
        text = delta_restore(delta, before, expected(before, old.digest), new.digest)
        guest.restore(text)
        assert _installed(guest) == expected(after, new.digest)


def test_text_of_a_delta_is_written_out() -> None:
    old, new = (ruleset(render(services(100, 2, moved=moved))) for moved in ((), (30,)))
    delta = document_difference(old.documents[0], new.documents[0])
    installed = expected(old.documents[0], old.digest)
    (name,) = delta.touched()
    chain = name.removeprefix("nat/")
    assert delta_restore(delta, old.documents[0], installed, new.digest) == (
        f"*filter\n"
        f":VCN-MARK-{min(old.digest[:16], new.digest[:16])} - [0:0]\n"
        f":VCN-MARK-{max(old.digest[:16], new.digest[:16])} - [0:0]\n"
        f"-X VCN-MARK-{old.digest[:16]}\n"
        f"COMMIT\n"
        f"*nat\n"
        f":VCN-MARK-{min(old.digest[:16], new.digest[:16])} - [0:0]\n"
        f":VCN-MARK-{max(old.digest[:16], new.digest[:16])} - [0:0]\n"
        f":{chain} - [0:0]\n"
        f"-A {chain} -p tcp -m statistic --mode random --probability 0.5000000000"
        f" -j DNAT --to-destination 10.7.7.7:8080\n"
        f"-A {chain} -p tcp -j DNAT --to-destination 10.9.0.31:8080\n"
        f"-X VCN-MARK-{old.digest[:16]}\n"
        f"COMMIT\n"
    )


def test_delta_repairs_shadowed_hooks_too() -> None:
    guest = _guest()
    guest.restore(full_restore(FIRST.documents[0], _installed(guest), FIRST.digest))
    guest.restore("*nat\n-A OUTPUT -p udp -j MESH\nCOMMIT\n")
    delta = document_difference(FIRST.documents[0], SECOND.documents[0])
    guest.restore(delta_restore(delta, FIRST.documents[0], _installed(guest), SECOND.digest))
    assert _installed(guest) == expected(SECOND.documents[0], SECOND.digest)


def test_delta_of_another_base_is_refused() -> None:
    delta = document_difference(FIRST.documents[0], SECOND.documents[0])
    other = Document(Family.IPV4, Backend.IPTABLES, {})
    with pytest.raises(BaseMismatch):
        delta_restore(delta, other, expected(other))


def test_without_a_digest_there_is_no_marker() -> None:
    guest = _guest()
    guest.restore(full_restore(FIRST.documents[0], _installed(guest)))
    assert "MARK" not in guest.save()
    assert _installed(guest).matches(FIRST.documents[0])


def test_nft_text_for_an_empty_guest_is_the_document() -> None:
    document = render_nft(everything(Family.IPV6))
    none = nothing_installed(Family.IPV6, Backend.NFT)
    assert full_restore(document, none) == document.text()
    assert "\tchain VCN-MARK-abababababababab {\n\t}\n" in full_restore(document, none, "ab" * 32)
    assert full_restore(document, expected(document)) == ""


def test_nft_text_changes_only_differences() -> None:
    old, new = (ruleset(render_nft(services(100, 2, moved=moved))) for moved in ((), (30,)))
    installed = expected(old.documents[0], old.digest)
    delta = document_difference(old.documents[0], new.documents[0])
    text = delta_restore(delta, old.documents[0], installed, new.digest)
    assert text == full_restore(new.documents[0], installed, new.digest)
    (name,) = delta.touched()
    chain = name.removeprefix("chain ")
    assert text == (
        f"add chain ip vcnode VCN-MARK-{new.digest[:16]}\n"
        f"flush chain ip vcnode VCN-MARK-{old.digest[:16]}\n"
        f"flush chain ip vcnode {chain}\n"
        f"add rule ip vcnode {chain} meta l4proto tcp dnat ip to numgen random mod 2"
        f" map {{ 0 : 10.7.7.7 . 8080, 1 : 10.9.0.31 . 8080 }}\n"
        f"delete chain ip vcnode VCN-MARK-{old.digest[:16]}\n"
    )


def test_nft_replaces_the_table_if_a_definition_changes() -> None:
    new = render_nft(services(3, 2))
    changed = new.objects["set service-cidrs"]
    other = ("type ipv6_addr" if line == "type ipv4_addr" else line for line in changed)
    old = Document(new.family, new.backend, {**new.objects, "set service-cidrs": tuple(other)})
    installed = expected(old)
    assert full_restore(new, installed) == new.text()
    assert delta_restore(document_difference(old, new), old, installed) == new.text()


@pytest.mark.parametrize("family", Family)
def test_nft_keeps_other_clients_when_a_timeout_changes(family: Family) -> None:
    _, *others = services(3, 2, family, affinity_s=60).services
    before, after = (
        render_nft(GuestRules(family, (*services(1, 2, family, affinity_s=age).services, *others), ()))
        for age in (60, 120)
    )
    text = delta_restore(document_difference(before, after), before, expected(before))
    kept = [name for name in before.objects if name.startswith("set VCN-SEP-") and name in after.objects]
    assert len(kept) == 4
    assert not any(name.removeprefix("set ") in text for name in kept)
    made = [line for line in text.splitlines() if line.startswith("add set ")]
    gone = [line for line in text.splitlines() if line.startswith("delete set ")]
    assert (len(made), len(gone)) == (2, 2)
    assert "delete table" not in text


def test_nft_removal_deletes_the_table() -> None:
    installed = expected(render_nft(services(1, 1)))
    assert removal(installed) == "delete table ip vcnode\n"
    assert removal(nothing_installed(Family.IPV4, Backend.NFT)) == ""
