# SPDX-License-Identifier: Apache-2.0
import itertools
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruleset.delta import (
    BaseMismatch,
    DocumentDelta,
    Edit,
    apply_delta,
    apply_document_delta,
    difference,
    document_difference,
    parse_delta,
)
from ruleset.document import BadDocument, Document, Ruleset, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend
from tests.unit.ruleset.models import RENDERERS, everything, ruleset, services

MAX_DELTA_BYTES = 500

_LINES = st.lists(st.sampled_from([f"-p {p} -j VCN-{c}" for p in ("tcp", "udp") for c in "ABCDEF"])).map(
    tuple
)
_NAMES = st.sampled_from([f"{table}/VCN-{c}" for table in ("nat", "filter") for c in "ABC"])
_OBJECTS = st.dictionaries(_NAMES, _LINES)
_FAMILIES = st.sampled_from(Family)
_DOCUMENTS = st.builds(Document, _FAMILIES, st.just(Backend.IPTABLES), _OBJECTS)
_RULESETS = st.lists(_DOCUMENTS, max_size=2, unique_by=lambda d: d.family).map(lambda d: make_ruleset(1, d))


@given(_RULESETS, _RULESETS)
def test_difference_applied_to_the_old_is_the_new(old: Ruleset, new: Ruleset) -> None:
    new = make_ruleset(2, new.documents)
    delta = difference(old, new)
    if delta is None:
        assert old.documents == new.documents
        return
    made = apply_delta(old, delta)
    assert made == new
    assert apply_delta(made, delta) == new, "applied twice it changes nothing"
    assert difference(made, new) is None


@given(_OBJECTS, _OBJECTS)
def test_parse_is_the_inverse_of_text(
    old: dict[str, tuple[str, ...]], new: dict[str, tuple[str, ...]]
) -> None:
    before, after = (Document(Family.IPV4, Backend.IPTABLES, objects) for objects in (old, new))
    delta = document_difference(before, after)
    read = parse_delta(delta.text(), Family.IPV4, Backend.IPTABLES)
    assert read == delta
    assert apply_document_delta(before, read) == after


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"moved": [30]}),
        ({}, {"fewer": [30]}),
        ({"fewer": [30]}, {}),
        ({"fewer": [30]}, {"refused": [30]}),
        ({}, {"refused": [30]}),
        ({"affinity_s": 60}, {"affinity_s": 60, "moved": [30]}),
    ],
    ids=["another endpoint", "two to one", "one to two", "one to none", "two to none", "with affinity"],
)
def test_changed_endpoint_of_hundred_services_is_small(
    before: dict[str, list[int]], after: dict[str, list[int]], family: Family, backend: Backend
) -> None:
    render = RENDERERS[backend]
    old, new = (ruleset(render(services(100, 2, family, **how))) for how in (before, after))  # type: ignore[arg-type]  # parametrized
    delta = difference(old, new)
    assert delta is not None
    (change,) = delta.documents
    text = change.text().encode()
    bound = MAX_DELTA_BYTES if "affinity_s" not in after else 3 * MAX_DELTA_BYTES
    assert len(text) <= bound, text.decode()
    assert len(zlib.compress(text)) <= MAX_DELTA_BYTES


def test_text_is_written_out() -> None:
    render = RENDERERS[Backend.IPTABLES]
    old = render(services(3, 2))
    new = render(services(3, 2, refused=[0], fewer=[1], moved=[2]))
    assert (
        document_difference(old, new).text()
        == """\
- nat/VCN-SVC-BHFGTU46S7QIWYEQ
- nat/VCN-SVC-SD5V2QTTWCAVMAAT
~ filter/VCN-SERVICES
@ 1 0
+ -d 172.30.0.1/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
~ nat/VCN-SERVICES
@ 0 2
+ -d 172.30.0.2/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.8.0.2:8080
~ nat/VCN-SVC-O6V6XWCR2B6R5KR6
@ 0 1
+ -p tcp -m statistic --mode random --probability 0.5000000000 -j DNAT --to-destination 10.7.7.7:8080
"""
    )


def test_edit_keeps_the_lines_around_it() -> None:
    lines = tuple(f"-p tcp -j VCN-{i}" for i in range(9))
    before = Document(Family.IPV4, Backend.IPTABLES, {"nat/VCN-SERVICES": lines})
    after_lines = (*lines[:2], "-p udp -j VCN-2", *lines[3:6], *lines[7:], "-j VCN-9")
    after = Document(Family.IPV4, Backend.IPTABLES, {"nat/VCN-SERVICES": after_lines})
    delta = document_difference(before, after)
    assert delta.edited == {
        "nat/VCN-SERVICES": (Edit(2, 1, ("-p udp -j VCN-2",)), Edit(6, 1, ()), Edit(9, 0, ("-j VCN-9",)))
    }
    assert delta.text() == ("~ nat/VCN-SERVICES\n@ 2 1\n+ -p udp -j VCN-2\n@ 6 1\n@ 9 0\n+ -j VCN-9\n")
    assert delta.touched() == {"nat/VCN-SERVICES"}


def test_documents_are_added_and_removed() -> None:
    documents = {(f, b): RENDERERS[b](everything(f)) for f in Family for b in Backend}
    four = ruleset(documents[Family.IPV4, Backend.IPTABLES])
    both = ruleset(documents[Family.IPV4, Backend.IPTABLES], documents[Family.IPV6, Backend.IPTABLES])
    other = ruleset(documents[Family.IPV4, Backend.NFT])
    for old, new in ((four, both), (both, four), (four, other), (ruleset(), four), (four, ruleset())):
        delta = difference(old, new)
        assert delta is not None
        assert apply_delta(old, delta) == new


def test_other_base_is_refused() -> None:
    render = RENDERERS[Backend.IPTABLES]
    one, two, three = (ruleset(render(services(n, 2))) for n in (1, 2, 3))
    delta = difference(one, two)
    assert delta is not None
    with pytest.raises(BaseMismatch, match="the delta is from"):
        apply_delta(three, delta)
    with pytest.raises(BaseMismatch, match="the delta makes"):
        apply_delta(one, replace(delta, digest="0" * 64))
    with pytest.raises(BaseMismatch, match="the base has no"):
        apply_delta(ruleset(), replace(difference(two, one) or delta, base_digest=ruleset().digest))


@pytest.mark.parametrize(
    "delta",
    [
        DocumentDelta(Family.IPV4, Backend.IPTABLES, {}, ("nat/VCN-B",), {}),
        DocumentDelta(Family.IPV4, Backend.IPTABLES, {}, (), {"nat/VCN-B": (Edit(0, 0, ("-j DROP",)),)}),
        DocumentDelta(Family.IPV4, Backend.IPTABLES, {}, (), {"nat/VCN-A": (Edit(1, 1, ()),)}),
        DocumentDelta(Family.IPV4, Backend.IPTABLES, {}, (), {"nat/VCN-A": (Edit(1, 0, ()), Edit(0, 1, ()))}),
    ],
)
def test_delta_that_does_not_fit_is_refused(delta: DocumentDelta) -> None:
    with pytest.raises(BaseMismatch):
        apply_document_delta(Document(Family.IPV4, Backend.IPTABLES, {"nat/VCN-A": ("-j DROP",)}), delta)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("+ -j DROP\n", 1),
        ("~ nat/VCN-A\n+ -j DROP\n", 2),
        ("= nat/VCN-A\n@ 0 1\n", 2),
        ("~ nat/VCN-A\n@ 0 01\n", 2),
        ("~ nat/VCN-A\n@ -1 1\n", 2),
        ("- nat/VCN-A\n= nat/VCN-A\n", 2),
        ("= nat/VCN-A\n+ -j DROP\n\n", 3),
        ("? nat/VCN-A\n", 1),
        ("= nat/PREROUTING\n", 0),
        ("= nat/VCN-A\n+ -j DROP --modprobe x\n", 0),
        ("~ nat/VCN-A\n@ 0 0\n+ -j DROP --modprobe x\n", 0),
        ("- mangle/OUTPUT\n", 0),
        ("~ mangle/OUTPUT\n", 0),
    ],
)
def test_other_text_is_refused_with_its_line(text: str, number: int) -> None:
    with pytest.raises(BadDocument) as raised:
        parse_delta(text, Family.IPV4, Backend.IPTABLES)
    assert raised.value.line_number == number


@given(st.text(alphabet="+-=~@ 01nat/VCN-A\n", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        delta = parse_delta(text, Family.IPV4, Backend.IPTABLES)
    except BadDocument:
        return
    assert parse_delta(delta.text(), Family.IPV4, Backend.IPTABLES) == delta


def test_objects_in_another_order_are_the_same_delta() -> None:
    lines = ["- nat/VCN-A\n", "- nat/VCN-B\n", "- nat/VCN-C\n"]
    deltas = [
        parse_delta("".join(each), Family.IPV4, Backend.IPTABLES) for each in itertools.permutations(lines)
    ]
    assert all(delta == deltas[0] for delta in deltas)


def test_thousand_changed_lines_are_compared_fast() -> None:
    render = RENDERERS[Backend.IPTABLES]
    old, new = (ruleset(render(services(3000, 2, fewer=range(k, 3000, 3)))) for k in (0, 1))
    delta = difference(old, new)
    assert delta is not None
    assert apply_delta(old, delta) == new
