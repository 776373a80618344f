# SPDX-License-Identifier: Apache-2.0
"""Which destinations of UDP packets the rules of a document decide about. Pure.

A conntrack entry to such a destination outlives its rule. So whoever replaces rules has to know the
destinations that the new ones lack, and can know them from the rules that are there.
"""

import re
from collections.abc import Iterable

from ruleset.delta import DocumentDelta, RulesetDelta, apply_document_delta
from ruleset.document import Document, Ruleset
from ruleset.model import Endpoint
from ruleset.names import SERVICES, Backend

_OBJECTS = {
    Backend.IPTABLES: (f"nat/{SERVICES}", f"filter/{SERVICES}"),
    Backend.NFT: ("map services", "map endpoints", "map refusals"),
}
# As `ruleset.render.iptables` and `ruleset.render.nft` write a frontend.
_IPTABLES_LINE = re.compile(r"-d ([0-9a-f.:]{2,45})/(?:32|128) -p udp -m udp --dport ([0-9]{1,5}) -j .*")
_NFT_LINE = re.compile(r"([0-9a-f.:]{2,45}) \. udp \. ([0-9]{1,5}) : .*")
_LINES = {Backend.IPTABLES: _IPTABLES_LINE, Backend.NFT: _NFT_LINE}


def udp_frontends(documents: Iterable[Document]) -> frozenset[Endpoint]:
    """The address and port of each UDP frontend of these documents."""
    found: set[Endpoint] = set()
    for document in documents:
        line_of = _LINES[document.backend]
        for name in _OBJECTS[document.backend]:
            lines = (line_of.fullmatch(line) for line in document.objects.get(name, ()))
            found.update(Endpoint(line[1], int(line[2])) for line in lines if line is not None)
    return frozenset(found)


def frontends_ended_by(delta: RulesetDelta, base: Ruleset) -> frozenset[Endpoint]:
    """The UDP frontends that the delta takes from its base; none of another base. Raises `BaseMismatch`.

    As long as the delta, but where it changes a line of one: then as long as the base.
    """
    if delta.base_digest != base.digest:
        return frozenset()
    pairs = [(base.document(each.family, each.backend), each) for each in delta.documents]
    lost = udp_frontends(_lost(before, change) for before, change in pairs)
    if not lost:
        return lost
    return lost - udp_frontends(apply_document_delta(before, change) for before, change in pairs)


def _lost(before: Document, change: DocumentDelta) -> Document:
    """What of a document is not as it was."""
    objects = {name: before.objects.get(name, ()) for name in (*change.changed, *change.removed)}
    for name, edits in change.edited.items():
        lines = before.objects.get(name, ())
        objects[name] = tuple(line for each in edits for line in lines[each.at : each.at + each.removed])
    return Document(before.family, before.backend, objects)
