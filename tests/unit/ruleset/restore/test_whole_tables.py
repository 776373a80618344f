# SPDX-License-Identifier: Apache-2.0
import pytest

from devkit.fake_iptables import FakeIptables
from ruleset.document import Document
from ruleset.installed.rules import read_installed
from ruleset.model import Family
from ruleset.names import Backend
from ruleset.render.iptables import render
from ruleset.restore.whole_tables import MAX_TEXT_BYTES, RulesetTooLarge, whole_tables
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
EMPTY = Document(Family.IPV4, Backend.IPTABLES, {})


def test_foreign_lines_keep_their_position_before_our_hook() -> None:
    assert whole_tables(FOREIGN, DOCUMENT, DIGEST) == MERGED


def test_merging_again_changes_nothing() -> None:
    assert whole_tables(MERGED, DOCUMENT, DIGEST) == MERGED


def test_older_ruleset_is_replaced() -> None:
    older = MERGED.replace("abababab", "cdcdcdcd").replace(
        "-A OUTPUT -p tcp -j MESH\n", "-A OUTPUT -j VCN-SERVICES\n-A OUTPUT -p tcp -j MESH\n"
    )
    assert whole_tables(older, DOCUMENT, DIGEST) == MERGED


def test_empty_save_is_a_fresh_guest() -> None:
    assert whole_tables("", DOCUMENT) == DOCUMENT.text()


def test_empty_document_removes_our_rules() -> None:
    foreign_nat = FOREIGN[FOREIGN.index("*nat") :]
    assert whole_tables(MERGED, EMPTY) == f"*filter\nCOMMIT\n{foreign_nat}"


@pytest.mark.parametrize("family", Family)
def test_restored_tables_have_the_ruleset(family: Family) -> None:
    guest = FakeIptables()
    guest.restore(FOREIGN[FOREIGN.index("*nat") :])
    before = guest.save()
    for model in (everything(family), services(20, 2, family)):
        made = ruleset(render(model))
        guest.restore(whole_tables(guest.save(), made.documents[0], made.digest), noflush=False)
        installed = read_installed(guest.save(), family, Backend.IPTABLES)
        assert installed.matches(made.documents[0])
        assert installed.is_marked(made.digest)
    guest.restore(whole_tables(guest.save(), EMPTY), noflush=False)
    assert guest.save() == before


def test_text_beyond_the_message_limit_is_refused() -> None:
    rules = tuple(
        f"-d 10.0.{i >> 8 & 255}.{i & 255}/32 -j DNAT --to-destination 1.2.3.4:80" for i in range(70_000)
    )
    with pytest.raises(RulesetTooLarge, match=f"a stock Kata guest takes {MAX_TEXT_BYTES}"):
        whole_tables("", Document(Family.IPV4, Backend.IPTABLES, {"nat/VCN-SERVICES": rules}))
