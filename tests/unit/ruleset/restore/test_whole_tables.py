# SPDX-License-Identifier: Apache-2.0
import pytest

from ruleset.document import Document
from ruleset.installed.rules import read_installed
from ruleset.model import Family
from ruleset.names import Backend
from ruleset.render.iptables import render
from ruleset.restore.whole_tables import MAX_TEXT_BYTES, RulesetTooLarge, whole_tables, without_ours
from tests.unit.ruleset.kernel import Kernel
from tests.unit.ruleset.models import everything, ruleset, services

FOREIGN = """\
*raw
:OUTPUT ACCEPT [0:0]
-A OUTPUT -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [12:720]
:MESH - [0:0]
-A OUTPUT -p tcp -j MESH
-A MESH -m comment --comment "let \\"them\\" be" -j RETURN
-A MESH -p tcp -j REDIRECT --to-ports 15001
COMMIT
"""
DOCUMENT = Document(
    Family.IPV4,
    Backend.IPTABLES,
    {
        "nat/OUTPUT": ("-j VCN-SERVICES",),
        "nat/VCN-SERVICES": ("-d 10.0.0.1/32 -j DNAT --to-destination 1.2.3.4:80",),
        "filter/VCN-SERVICES": (),
    },
)
MERGED = """\
*filter
:VCN-MARK-abababababababab - [0:0]
:VCN-SERVICES - [0:0]
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [12:720]
:MESH - [0:0]
:VCN-MARK-abababababababab - [0:0]
:VCN-SERVICES - [0:0]
-A OUTPUT -p tcp -j MESH
-A MESH -m comment --comment "let \\"them\\" be" -j RETURN
-A MESH -p tcp -j REDIRECT --to-ports 15001
-A OUTPUT -j VCN-SERVICES
-A VCN-SERVICES -d 10.0.0.1/32 -j DNAT --to-destination 1.2.3.4:80
COMMIT
"""
DIGEST = "ab" * 32


def test_foreign_lines_keep_their_place_and_our_hook_comes_last() -> None:
    assert whole_tables(FOREIGN, DOCUMENT, DIGEST) == MERGED


def test_merged_again_nothing_changes() -> None:
    assert whole_tables(MERGED, DOCUMENT, DIGEST) == MERGED


def test_an_older_one_of_ours_is_replaced() -> None:
    older = MERGED.replace("abababab", "cdcdcdcd").replace(
        "-A OUTPUT -p tcp -j MESH\n", "-A OUTPUT -j VCN-SERVICES\n-A OUTPUT -p tcp -j MESH\n"
    )
    assert whole_tables(older, DOCUMENT, DIGEST) == MERGED


def test_an_empty_read_is_a_fresh_guest() -> None:
    assert whole_tables("", DOCUMENT) == DOCUMENT.text()


def test_without_ours() -> None:
    kept = FOREIGN[FOREIGN.index("*nat") :]
    assert without_ours(MERGED) == f"*filter\nCOMMIT\n{kept}"
    assert without_ours(FOREIGN) == ""
    assert without_ours("") == ""


@pytest.mark.parametrize("family", Family)
def test_whole_tables_make_the_guest_hold_it(family: Family) -> None:
    kernel = Kernel()
    kernel.restore(FOREIGN[FOREIGN.index("*nat") :])
    before = kernel.save()
    for model in (everything(family), services(20, 2, family)):
        made = ruleset(render(model))
        kernel.restore(whole_tables(kernel.save(), made.documents[0], made.digest), noflush=False)
        held = read_installed(kernel.save(), family, Backend.IPTABLES)
        assert held.matches(made.documents[0])
        assert held.is_marked(made.digest)
    kernel.restore(without_ours(kernel.save()), noflush=False)
    assert kernel.save() == before


def test_too_much_for_a_stock_guest() -> None:
    rules = tuple(
        f"-d 10.0.{i >> 8 & 255}.{i & 255}/32 -j DNAT --to-destination 1.2.3.4:80" for i in range(70_000)
    )
    with pytest.raises(RulesetTooLarge, match=f"a stock Kata guest takes {MAX_TEXT_BYTES}"):
        whole_tables("", Document(Family.IPV4, Backend.IPTABLES, {"nat/VCN-SERVICES": rules}))
