# SPDX-License-Identifier: Apache-2.0
import hashlib

import pytest

from ruleset.document import BadDocument, Document, Ruleset, check_objects, make_ruleset, parse
from ruleset.model import Family
from ruleset.names import Backend
from tests.unit.ruleset.models import RENDERERS, everything, services

PAIRS = [(family, backend) for family in Family for backend in Backend]


@pytest.mark.parametrize(("family", "backend"), PAIRS)
def test_parse_is_the_inverse_of_text(family: Family, backend: Backend) -> None:
    for model in (everything(family), services(20, 2, family, fewer=[3], refused=[4], affinity_s=60)):
        document = RENDERERS[backend](model)
        assert parse(document.text(), family, backend) == document


@pytest.mark.parametrize(("family", "backend"), PAIRS)
def test_text_does_not_depend_on_the_objects_order(family: Family, backend: Backend) -> None:
    document = RENDERERS[backend](everything(family))
    backwards = Document(
        family, backend, {name: document.objects[name] for name in reversed(list(document.objects))}
    )
    assert backwards.text() == document.text()


@pytest.mark.parametrize(
    ("backend", "name"),
    [
        (Backend.IPTABLES, "mangle/VCN-SERVICES"),
        (Backend.IPTABLES, "nat/PREROUTING"),
        (Backend.IPTABLES, "nat/KUBE-SERVICES"),
        (Backend.IPTABLES, "nat/VCN-SERVICES -X"),
        (Backend.NFT, "table ip other"),
        (Backend.NFT, "chain a { }"),
        (Backend.NFT, "chain "),
    ],
)
def test_foreign_objects_are_refused(backend: Backend, name: str) -> None:
    with pytest.raises(BadDocument):
        check_objects({name: ()}, backend)


def test_digest_depends_on_the_documents_only() -> None:
    document = Document(Family.IPV4, Backend.IPTABLES, {"nat/VCN-SERVICES": ()})
    text = b"*nat\n:VCN-SERVICES - [0:0]\nCOMMIT\n"
    assert document.text().encode() == text
    expected = hashlib.sha256(b"ipv4 iptables 34\n" + text).hexdigest()
    assert make_ruleset(7, [document]) == Ruleset(7, expected, (document,))


def test_order_and_empty_documents_do_not_matter() -> None:
    documents = [RENDERERS[backend](everything(family)) for family, backend in PAIRS]
    made = make_ruleset(1, documents)
    nothing = Document(Family.IPV4, Backend.IPTABLES, {})
    assert made == make_ruleset(1, reversed(documents))
    assert make_ruleset(1, documents[:1]) == make_ruleset(1, [documents[0]])
    assert make_ruleset(1, [documents[2], nothing]) == make_ruleset(1, [documents[2]])
    assert made.document(Family.IPV6, Backend.NFT) == documents[3]
    assert make_ruleset(1, []).document(Family.IPV4, Backend.IPTABLES) == nothing


def test_different_documents_have_different_digests() -> None:
    rulesets = [make_ruleset(1, [RENDERERS[b](everything(f))]) for f, b in PAIRS]
    rulesets += [make_ruleset(1, []), make_ruleset(1, [RENDERERS[b](services(3, 2)) for b in Backend])]
    assert len({ruleset.digest for ruleset in rulesets}) == len(rulesets)
