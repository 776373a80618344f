# SPDX-License-Identifier: Apache-2.0
"""Rulesets and deltas as messages, and back; large texts are deflated (RFC 1950).

gRPC and stock ttrpc carry at most 4 MiB in a message. Rules deflate to about a tenth, so that bound
is reached by a ruleset of some 40 MiB, far beyond what a guest's packet filter should be given.
"""

import zlib
from typing import TypeVar

from bridge_api import messages
from bridge_api.messages import Part, PartDelta
from ruleset.delta import DocumentDelta, RulesetDelta, parse_delta
from ruleset.document import BadDocument, Document, Ruleset, make_ruleset, parse
from ruleset.model import Family
from ruleset.names import Backend

# Whoever sends this much text, deflated or not, is refused before it is read.
MAX_TEXT_BYTES = 48 << 20
# Two families in two languages.
MAX_PARTS = 4
# Below this deflating costs more than it saves on a local socket.
DEFLATE_FROM_BYTES = 1 << 10
# The fastest level finds most of it: rules differ in a few digits.
_LEVEL = 1

_P = TypeVar("_P", Part, PartDelta)


class BadRuleset(Exception):  # noqa: N818 - the sender's fault, told to the sender
    """A message that is no ruleset; says which part and line."""


def to_message(ruleset: Ruleset | RulesetDelta) -> messages.Ruleset:
    """Return the message that carries `ruleset`."""
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
    """Return what the message carries. Raises `BadRuleset`, also where the digest is another."""
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
        raise BadRuleset(f"the digest is {ruleset.digest[:16]}, not {message.digest[:16]} as it says")
    return ruleset


def to_part(document: Document) -> Part:
    """Return the message of one document."""
    return _packed(Part, document, document.text())


def from_part(part: Part, max_lines: int | None = None) -> Document:
    """Return the document that the message carries. Raises `BadRuleset`."""
    family, backend = _languages(part)
    text = _text(part)
    if max_lines is not None and text.count("\n") > max_lines:
        raise BadRuleset(f"{part.family} {part.backend}: more than {max_lines} lines")
    try:
        return parse(text, family, backend)
    except BadDocument as error:
        raise BadRuleset(f"{part.family} {part.backend}: {error}") from None


def _delta(part: PartDelta) -> DocumentDelta:
    family, backend = _languages(part)
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
            # One byte more than was said: a bomb stops there.
            data = inflater.decompress(data, part.deflated_from + 1)
        except zlib.error:
            raise BadRuleset(f"{part.family} {part.backend}: cannot be inflated") from None
        if len(data) != part.deflated_from or not inflater.eof:
            raise BadRuleset(f"{part.family} {part.backend}: not of the size it says")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadRuleset(f"{part.family} {part.backend}: not UTF-8") from None


def _languages(part: Part | PartDelta) -> tuple[Family, Backend]:
    try:
        return Family(part.family), Backend(part.backend)
    except ValueError:
        raise BadRuleset(f"unknown family or backend: {part.family[:20]!r} {part.backend[:20]!r}") from None
