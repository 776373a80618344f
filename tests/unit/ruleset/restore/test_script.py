# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruleset.delta import BaseMismatch, document_difference
from ruleset.document import Document, Ruleset
from ruleset.installed.rules import InstalledRules, expected, nothing_installed, read_installed
from ruleset.model import Family, GuestRules
from ruleset.names import Backend
from ruleset.render.iptables import render
from ruleset.render.nft import render as render_nft
from ruleset.restore.script import delta_restore, full_restore, removal
from tests.unit.ruleset.kernel import Kernel, RefusedError
from tests.unit.ruleset.models import everything, ruleset, services

FIRST = ruleset(render(services(6, 2, affinity_s=60)))
SECOND = ruleset(render(services(6, 2, fewer=[1], refused=[2], moved=[3])))
MESH = "*nat\n:MESH - [0:0]\n-A OUTPUT -p tcp -j MESH\n-A MESH -j RETURN\nCOMMIT\n"

# What strangers may do to a guest, also to what is ours.
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


def _guest() -> Kernel:
    kernel = Kernel()
    kernel.restore(MESH)
    return kernel


def _held(kernel: Kernel) -> InstalledRules:
    return read_installed(kernel.save(), Family.IPV4, Backend.IPTABLES)


def _foreign(kernel: Kernel) -> list[str]:
    return [line for line in kernel.save().splitlines() if "VCN-" not in line]


@given(st.lists(st.sampled_from(DAMAGE), max_size=6), st.sampled_from([FIRST, SECOND, None]))
def test_one_text_for_a_first_apply_and_for_every_repair(
    damage: list[str], started_with: Ruleset | None
) -> None:
    kernel = _guest()
    if started_with is not None:
        (document,) = started_with.documents
        kernel.restore(full_restore(document, _held(kernel), started_with.digest))
    for change in damage:
        try:
            kernel.restore(change)
        except RefusedError:
            continue  # damage that cannot be done twice
    foreign = _foreign(kernel)
    kernel.restore(full_restore(SECOND.documents[0], _held(kernel), SECOND.digest))
    held = _held(kernel)
    assert held == expected(SECOND.documents[0], SECOND.digest)
    assert held.matches(SECOND.documents[0])
    assert _foreign(kernel) == foreign, "what is not ours is as it was, in its place"
    again = kernel.save()
    kernel.restore(full_restore(SECOND.documents[0], held, SECOND.digest))
    assert kernel.save() == again, "applied twice it changes nothing"
    kernel.restore(removal(_held(kernel)))
    assert _held(kernel).is_empty
    assert _foreign(kernel) == foreign
    assert removal(_held(kernel)) == ""


def test_after_tables_were_flushed() -> None:
    kernel = _guest()
    kernel.restore(full_restore(FIRST.documents[0], _held(kernel), FIRST.digest))
    for table in ("nat", "filter"):
        kernel.restore(f"*{table}\nCOMMIT\n", noflush=False)
        kernel.restore(full_restore(FIRST.documents[0], _held(kernel), FIRST.digest))
        assert _held(kernel) == expected(FIRST.documents[0], FIRST.digest)


def test_there_and_back_by_deltas() -> None:
    kernel = _guest()
    kernel.restore(full_restore(FIRST.documents[0], _held(kernel), FIRST.digest))
    for old, new in ((FIRST, SECOND), (SECOND, FIRST)):
        (before,), (after,) = old.documents, new.documents
        delta = document_difference(before, after)
        text = delta_restore(delta, before, expected(before, old.digest), new.digest)
        kernel.restore(text)
        assert _held(kernel) == expected(after, new.digest)


def test_text_of_a_delta_in_full() -> None:
    old, new = (ruleset(render(services(100, 2, moved=moved))) for moved in ((), (30,)))
    delta = document_difference(old.documents[0], new.documents[0])
    held = expected(old.documents[0], old.digest)
    (name,) = delta.touched()
    chain = name.removeprefix("nat/")
    assert delta_restore(delta, old.documents[0], held, new.digest) == (
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


def test_a_delta_puts_hooks_right_too() -> None:
    kernel = _guest()
    kernel.restore(full_restore(FIRST.documents[0], _held(kernel), FIRST.digest))
    kernel.restore("*nat\n-A OUTPUT -p udp -j MESH\nCOMMIT\n")
    delta = document_difference(FIRST.documents[0], SECOND.documents[0])
    kernel.restore(delta_restore(delta, FIRST.documents[0], _held(kernel), SECOND.digest))
    assert _held(kernel) == expected(SECOND.documents[0], SECOND.digest)


def test_a_delta_from_elsewhere() -> None:
    delta = document_difference(FIRST.documents[0], SECOND.documents[0])
    other = Document(Family.IPV4, Backend.IPTABLES, {})
    with pytest.raises(BaseMismatch):
        delta_restore(delta, other, expected(other))


def test_without_a_marker_nothing_marks() -> None:
    kernel = _guest()
    kernel.restore(full_restore(FIRST.documents[0], _held(kernel)))
    assert "MARK" not in kernel.save()
    assert _held(kernel).matches(FIRST.documents[0])


def test_nft_into_an_empty_guest_is_the_document() -> None:
    document = render_nft(everything(Family.IPV6))
    none = nothing_installed(Family.IPV6, Backend.NFT)
    assert full_restore(document, none) == document.text()
    assert "\tchain VCN-MARK-abababababababab {\n\t}\n" in full_restore(document, none, "ab" * 32)
    assert full_restore(document, expected(document)) == ""


def test_nft_changes_what_differs() -> None:
    old, new = (ruleset(render_nft(services(100, 2, moved=moved))) for moved in ((), (30,)))
    held = expected(old.documents[0], old.digest)
    delta = document_difference(old.documents[0], new.documents[0])
    text = delta_restore(delta, old.documents[0], held, new.digest)
    assert text == full_restore(new.documents[0], held, new.digest)
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


def test_nft_replaces_the_table_where_no_command_changes_it() -> None:
    new = render_nft(services(3, 2))
    changed = new.objects["set service-cidrs"]
    other = ("type ipv6_addr" if line == "type ipv4_addr" else line for line in changed)
    old = Document(new.family, new.backend, {**new.objects, "set service-cidrs": tuple(other)})
    held = expected(old)
    assert full_restore(new, held) == new.text()
    assert delta_restore(document_difference(old, new), old, held) == new.text()


@pytest.mark.parametrize("family", Family)
def test_nft_keeps_the_clients_of_others_when_one_affinity_timeout_changes(family: Family) -> None:
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


def test_nft_removal() -> None:
    held = expected(render_nft(services(1, 1)))
    assert removal(held) == "delete table ip vcnode\n"
    assert removal(nothing_installed(Family.IPV4, Backend.NFT)) == ""
