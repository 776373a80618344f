# SPDX-License-Identifier: Apache-2.0
"""Objects as the operator keeps them, of which a test may read nothing else; and whole ones beside them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from tenant_operator.core.live import (
    KEPT_CERTIFICATES,
    KEPT_DATA,
    KEPT_METADATA,
    KEPT_STATUS,
    LiveMeta,
    LiveObject,
    parse_live,
)
from tenant_operator.core.packed_objects import ObjectCodec
from tenant_operator.model.objects import Object, Ref
from tenant_operator.pki.facts import digest_of, secret_facts

CODECS: dict[str, ObjectCodec] = {}


class NotKeptError(AssertionError):
    """A plan reads what the operator does not keep."""


class KeptFields(dict[str, Any]):
    """A mapping that has these keys alone: another one is not absent, it is unknown."""

    def __init__(
        self, value: Object, known: Iterable[str] | None, unknown: Iterable[str], where: str
    ) -> None:
        super().__init__(value)
        self._known = None if known is None else frozenset(known)
        self._unknown = frozenset(unknown)
        self._where = where

    def _check(self, key: object) -> None:
        if key in self._unknown or (self._known is not None and key not in self._known):
            raise NotKeptError(f"{self._where}.{key} is not kept")

    def __getitem__(self, key: str) -> Any:
        self._check(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._check(key)
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._check(key)
        return super().get(key, default)


class KeptObject(LiveObject, frozen=True):
    """As it comes from the store of the operator."""

    kind: str = ""

    @property
    def value(self) -> Object:
        if self.kind == "Secret":
            raise NotKeptError("Secret has no value")
        kind, found = self.kind, super().value
        found["metadata"] = KeptFields(found["metadata"], KEPT_METADATA, (), f"{kind}.metadata")
        found["status"] = KeptFields(found["status"], KEPT_STATUS.get(kind, ()), (), f"{kind}.status")
        unknown = {"apiVersion", "kind"}
        if kind == "ConfigMap" and self.metadata.name not in KEPT_DATA:
            unknown.add("data")
        return KeptFields(found, None, unknown, kind)


class WholeObject(LiveObject, frozen=True):
    """As the API server has it."""

    whole: Object = msgspec.field(default_factory=dict)

    @property
    def value(self) -> Object:
        return self.whole


def kept(ref: Ref, value: Object) -> LiveObject:
    """What the operator knows of an object, after it was packed and unpacked."""
    return kept_all({ref: value})[ref]


def kept_all(objects: dict[Ref, Object]) -> dict[Ref, LiveObject]:
    """The same of all objects of a tenant, in their order."""
    texts: dict[str, list[bytes]] = {}
    for ref, value in objects.items():
        texts.setdefault(ref.kind, []).append(_text(value))
    unpacked = {kind: iter(_unpacked(kind, tuple(each))) for kind, each in texts.items()}
    return {ref: next(unpacked[ref.kind]) for ref in objects}


def _text(value: Object) -> bytes:
    return json.dumps(value).encode()


# Between two plans of a world few objects change. Texts tell them apart: tests change objects in place.
@lru_cache(1024)
def _unpacked(kind: str, texts: tuple[bytes, ...]) -> Sequence[LiveObject]:
    """Objects of one kind, after they were packed and unpacked together."""
    parsed = [_parsed(kind, each) for each in texts]
    codec = CODECS.setdefault(kind, ObjectCodec(kind))
    unpacked = list(codec.unpack(codec.pack(parsed, is_sample=True)).values())
    assert unpacked == parsed
    return [
        KeptObject(live.metadata, live.body, live.digests, _certificates(live), live.facts, kind=kind)
        for live in unpacked
    ]


@lru_cache(4096)
def _parsed(kind: str, text: bytes) -> LiveObject:
    return parse_live(kind, text)


def _certificates(live: LiveObject) -> KeptFields:
    name = live.metadata.name
    known = None if name in KEPT_CERTIFICATES else ()
    return KeptFields(dict(live.certificates), known, (), f"certificates of Secret {name}")


def whole_all(objects: dict[Ref, Object]) -> dict[Ref, LiveObject]:
    """Whole objects."""
    return {ref: _whole(ref, value) for ref, value in objects.items()}


def _whole(ref: Ref, value: Object) -> LiveObject:
    live = _parsed_whole(ref.kind, _text(value))
    return WholeObject(live.metadata, b"", live.digests, live.certificates, live.facts, whole=value)


@lru_cache(4096)
def _parsed_whole(kind: str, text: bytes) -> LiveObject:
    value = json.loads(text)
    meta = msgspec.convert(value["metadata"], LiveMeta)
    data: dict[str, bytes] = {}
    if kind == "Secret":
        data = {key: base64.b64decode(each) for key, each in (value.get("data") or {}).items()}
    elif kind == "ConfigMap":
        data = {key: each.encode() for key, each in (value.get("data") or {}).items()}
    digests = {key: digest_of(each) for key, each in data.items()}
    public = {key: each for key, each in data.items() if kind == "Secret" and key.endswith(".crt")}
    facts = secret_facts(meta.annotations, digests, public).certificates
    return LiveObject(meta, b"", digests, public, facts)
