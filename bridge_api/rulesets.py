# SPDX-License-Identifier: Apache-2.0
"""Encodes rulesets and deltas as messages, and decodes them. Large texts are deflated (RFC 1950).

gRPC and stock ttrpc carry at most 4 MiB in a message. Rules deflate to about a tenth, so a ruleset
of 40 MiB reaches that limit: far more than a guest's packet filter should get.
"""

import zlib
from typing import TypeVar

from bridge_api import messages
from bridge_api.messages import Part, PartDelta
from ruleset.delta import DocumentDelta, RulesetDelta, parse_delta
from ruleset.document import BadDocument, Document, Ruleset, make_ruleset, parse
from ruleset.model import Family
from ruleset.names import Backend

# More text than this, deflated or not, is rejected before it is read.
MAX_TEXT_BYTES = 48 << 20
# Two IP families, two backends.
MAX_PARTS = 4
# Deflating less costs more than it saves on a local socket.
DEFLATE_FROM_BYTES = 1 << 10
# The fastest level saves most: rules differ in a few digits.
_LEVEL = 1

_P = TypeVar("_P", Part, PartDelta)


class BadRuleset(Exception):  # noqa: N818 - the sender's fault, named as `BadDocument`
    """A message does not decode to a ruleset; names the part and line."""


def to_message(ruleset: Ruleset | RulesetDelta) -> messages.Ruleset:
    if isinstance(ruleset, Ruleset):
        parts = tuple(to_part(document) for document in ruleset.documents)
        return messages.Ruleset(generation=ruleset.generation, digest=ruleset.digest, parts=parts)
    deltas = tuple(_packed(PartDelta, delta, delta.text()) for delta in ruleset.documents)
    return messages.Ruleset(
        generation=ruleset.generation,
        digest=ruleset.digest,
        base_digest=ruleset.base_digest,
        deltas=deltas,
    )


def from_message(message: messages.Ruleset) -> Ruleset | RulesetDelta:
    """Decode a ruleset or a delta. Raises `BadRuleset`, also for a wrong digest."""
    if not message.digest:
        raise BadRuleset("a ruleset without a digest")
    if len(message.parts) > MAX_PARTS or len(message.deltas) > MAX_PARTS:
        raise BadRuleset(f"more than {MAX_PARTS} parts")
    if message.base_digest:
        if message.parts:
            raise BadRuleset("both parts and a base")
        deltas = tuple(_delta(part) for part in message.deltas)
        return RulesetDelta(message.generation, message.digest, message.base_digest, deltas)
    if message.deltas:
        raise BadRuleset("deltas without a base")
    documents = tuple(from_part(part) for part in message.parts)
    if len({(each.family, each.backend) for each in documents}) != len(documents):
        raise BadRuleset("two parts for one family and backend")
    ruleset = make_ruleset(message.generation, documents)
    if ruleset.digest != message.digest:
        raise BadRuleset(f"the digest is {ruleset.digest[:16]}, not the declared {message.digest[:16]}")
    return ruleset


def to_part(document: Document) -> Part:
    return _packed(Part, document, document.text())


def from_part(part: Part, max_lines: int | None = None) -> Document:
    """Decode one document. Raises `BadRuleset`."""
    family, backend = _family_backend(part)
    text = _text(part)
    if max_lines is not None and text.count("\n") > max_lines:
        raise BadRuleset(f"{part.family} {part.backend}: more than {max_lines} lines")
    try:
        return parse(text, family, backend)
    except BadDocument as error:
        raise BadRuleset(f"{part.family} {part.backend}: {error}") from None


def _delta(part: PartDelta) -> DocumentDelta:
    family, backend = _family_backend(part)
    try:
        return parse_delta(_text(part), family, backend)
    except BadDocument as error:
        raise BadRuleset(f"delta of {part.family} {part.backend}: {error}") from None


def _packed(kind: type[_P], document: Document | DocumentDelta, text: str) -> _P:
    data, deflated_from = text.encode(), 0
    if len(data) >= DEFLATE_FROM_BYTES:
        data, deflated_from = zlib.compress(data, _LEVEL), len(data)
    return kind(document.family.value, document.backend.value, data, deflated_from)


def _text(part: Part | PartDelta) -> str:
    data = part.text
    if max(len(data), part.deflated_from) > MAX_TEXT_BYTES:
        raise BadRuleset(f"{part.family} {part.backend}: larger than {MAX_TEXT_BYTES} bytes")
    if part.deflated_from:
        inflater = zlib.decompressobj()
        try:
            # At most one byte more than declared: this stops a zip bomb.
            data = inflater.decompress(data, part.deflated_from + 1)
        except zlib.error:
            raise BadRuleset(f"{part.family} {part.backend}: cannot be inflated") from None
        if len(data) != part.deflated_from or not inflater.eof:
            raise BadRuleset(f"{part.family} {part.backend}: not of its declared size")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadRuleset(f"{part.family} {part.backend}: not UTF-8") from None


def _family_backend(part: Part | PartDelta) -> tuple[Family, Backend]:
    try:
        return Family(part.family), Backend(part.backend)
    except ValueError:
        raise BadRuleset(f"unknown family or backend: {part.family[:20]!r} {part.backend[:20]!r}") from None
