# SPDX-License-Identifier: Apache-2.0
"""Real packet filters load our texts, keep foreign rules, and print them as we read them back."""

import pytest

from ruleset.delta import difference, parse_delta
from ruleset.document import Document, make_ruleset
from ruleset.installed.rules import expected
from ruleset.model import Family, GuestRules
from ruleset.render.iptables import HOOKS
from ruleset.restore.script import delta_restore, full_restore, removal
from ruleset.restore.whole_tables import whole_tables
from tests.lab.namespaces import Lab
from tests.lab.ruleset.filters import COMPATIBLE, LEGACY, NATIVE, LabFilter
from tests.unit.ruleset.models import everything, services


def _models(family: Family) -> list[GuestRules]:
    return [
        everything(family),
        services(100, 2, family),
        services(100, 2, family, moved=[30]),
        services(100, 2, family, fewer=[30], refused=[40]),
        services(100, 2, family, affinity_s=3661, refused=[40, 41]),
        services(100, 1, family, affinity_s=60),
        services(30, 12, family),
        GuestRules(family, ()),
    ]


def _mesh(filter_: LabFilter) -> None:
    """Rules of a mesh's init container, in nat and filter."""
    filter_.restore(
        "*filter\n:OTHERS - [0:0]\n-A OUTPUT -j OTHERS\n-A INPUT -p tcp -m tcp --dport 9 -j DROP\nCOMMIT\n"
        "*nat\n:MESH - [0:0]\n:MESH_OUT - [0:0]\n-A PREROUTING -p tcp -j MESH\n-A OUTPUT -p tcp -j MESH_OUT\n"
        '-A MESH_OUT -m comment --comment "say \\"who\\"" -j RETURN\nCOMMIT\n',
        "--noflush",
    )


def test_whole_rulesets_are_installed_exactly(filter_: LabFilter) -> None:
    for rules in _models(filter_.family):
        made = filter_.apply(rules)
        installed = filter_.installed()
        assert installed == expected(made.documents[0], made.digest)
        assert installed.matches(made.documents[0])


def test_canonical_text_loads_into_a_fresh_guest(filter_: LabFilter) -> None:
    document = filter_.render(everything(filter_.family))
    filter_.load(document.text())
    assert filter_.installed() == expected(document)


def test_deltas_equal_whole_rulesets(filter_: LabFilter) -> None:
    first, *others = _models(filter_.family)
    old = filter_.apply(first)
    for rules in [*others, first]:
        new = make_ruleset(2, [filter_.render(rules)])
        change = difference(old, new)
        assert change is not None
        (delta,) = change.documents
        received = parse_delta(delta.text(), delta.family, delta.backend)
        (base,) = old.documents
        filter_.load(delta_restore(received, base, expected(base, old.digest), new.digest))
        assert filter_.installed() == expected(new.documents[0], new.digest)
        old = new


def test_second_apply_changes_nothing(filter_: LabFilter) -> None:
    _mesh(filter_)
    made = filter_.apply(everything(filter_.family))
    once = filter_.save()
    filter_.load(full_restore(made.documents[0], filter_.installed(), made.digest))
    assert filter_.save() == once


def test_foreign_rules_stay_and_removal_leaves_nothing(filter_: LabFilter) -> None:
    _mesh(filter_)
    before = filter_.save()
    for rules in _models(filter_.family):
        filter_.apply(rules)
    after = [line for line in filter_.save().splitlines() if "VCN-" not in line]
    assert after[: len(before.splitlines())] == before.splitlines(), "in the same order"
    if filter_.kind != NATIVE:
        in_filter = ["-A OUTPUT -j OTHERS", f"-A OUTPUT {HOOKS['filter/OUTPUT'][0]}"]
        in_nat = ["-A OUTPUT -p tcp -j MESH_OUT", f"-A OUTPUT {HOOKS['nat/OUTPUT'][0]}"]
        hooks = [line for line in filter_.save().splitlines() if line.startswith("-A OUTPUT")]
        assert hooks in ([*in_filter, *in_nat], [*in_nat, *in_filter])
    filter_.load(removal(filter_.installed()))
    assert filter_.save() == before
    assert filter_.installed().is_empty


@pytest.mark.parametrize(
    "damage",
    [
        "*nat\n-D OUTPUT -j VCN-SERVICES\nCOMMIT\n",
        "*nat\n-A OUTPUT -j VCN-SERVICES\n-A PREROUTING -j VCN-SERVICES\nCOMMIT\n",
        "*nat\n-A OUTPUT -p udp -j RETURN\nCOMMIT\n",
        "*nat\n:LOOP - [0:0]\n-A LOOP -p udp -j VCN-SERVICES\nCOMMIT\n",
        "*nat\n:VCN-SERVICES - [0:0]\nCOMMIT\n",
        "*filter\n:VCN-SERVICES - [0:0]\n:VCN-MINE - [0:0]\n-A VCN-SERVICES -j VCN-MINE\nCOMMIT\n",
        "*filter\n-D OUTPUT -m conntrack --ctstate NEW -j VCN-SERVICES\nCOMMIT\n",
    ],
    ids=["no hook", "more hooks", "shadowed", "a loop", "empty chain", "foreign chain", "no filter hook"],
)
@pytest.mark.parametrize("kind", [LEGACY, COMPATIBLE])
def test_repair_restores_our_rules_only(lab: Lab, kind: str, damage: str) -> None:
    filter_ = LabFilter(lab.namespace("guest"), kind, Family.IPV4)
    _mesh(filter_)
    made = filter_.apply(everything(Family.IPV4))
    filter_.restore(damage, "--noflush")
    assert not filter_.installed().matches(made.documents[0])
    filter_.load(full_restore(made.documents[0], filter_.installed(), made.digest))
    assert filter_.installed() == expected(made.documents[0], made.digest)
    assert "-A MESH_OUT" in filter_.save()


@pytest.mark.parametrize(
    "command", ["flush ruleset", "flush table {0}", "flush chain {0} nat-output", "delete table {0}"]
)
@pytest.mark.parametrize("family", Family)
def test_flushed_nft_table_is_repaired(lab: Lab, family: Family, command: str) -> None:
    filter_ = LabFilter(lab.namespace("guest"), NATIVE, family)
    made = filter_.apply(everything(family))
    ours = "ip vcnode" if family is Family.IPV4 else "ip6 vcnode"
    filter_.load(command.format(ours) + "\n")
    assert not filter_.installed().matches(made.documents[0])
    filter_.load(full_restore(made.documents[0], filter_.installed(), made.digest))
    assert filter_.installed() == expected(made.documents[0], made.digest)


def test_flush_of_all_rules_is_repaired(filter_: LabFilter) -> None:
    made = filter_.apply(everything(filter_.family))
    if filter_.kind == NATIVE:
        filter_.load("flush ruleset\n")
    else:
        filter_.restore("*nat\nCOMMIT\n")
    filter_.load(full_restore(made.documents[0], filter_.installed(), made.digest))
    assert filter_.installed() == expected(made.documents[0], made.digest)


@pytest.mark.parametrize("kind", [LEGACY, COMPATIBLE])
@pytest.mark.parametrize("family", Family)
def test_whole_tables_keep_foreign_rules(lab: Lab, kind: str, family: Family) -> None:
    """Applied as by Kata's agent: `iptables-restore` without `--noflush`."""
    filter_ = LabFilter(lab.namespace("guest"), kind, family)
    _mesh(filter_)
    before = filter_.save()

    def read() -> str:
        return filter_.namespace.run(f"{filter_.iptables}-save")

    for rules in _models(family):
        new = make_ruleset(2, [filter_.render(rules)])
        filter_.restore(whole_tables(read(), new.documents[0], new.digest))
        assert filter_.installed() == expected(new.documents[0], new.digest)
    filter_.restore(whole_tables(read(), Document(family, filter_.backend, {})))
    assert filter_.save() == before
