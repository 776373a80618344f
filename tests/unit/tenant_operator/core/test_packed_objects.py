# SPDX-License-Identifier: Apache-2.0
"""What was packed comes back as it was, and other tenants' alike take little."""

from __future__ import annotations

import json

import pytest

from tenant_operator.core.live import LiveMeta, LiveObject, parse_live
from tenant_operator.core.packed_objects import ObjectCodec
from tenant_operator.model.objects import Ref
from tenant_operator.pki.facts import CertificateFacts
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster

ODD_PEM = b"-----BEGIN CERTIFICATE-----\r\nAAAA\r\n-----END CERTIFICATE-----\r\n"


def world(name: str, uid: str) -> FakeWorld:
    found = FakeWorld(virtual_cluster(name))
    found.cluster["metadata"]["uid"] = uid
    found.run()
    return found


@pytest.fixture(scope="module")
def worlds() -> list[dict[str, list[LiveObject]]]:
    """Two tenants' objects, by kind."""
    found = []
    for each in (world("acme", "3c6ef372-0000-4000-8000-000000000001"), world("blue", "0" * 8 + "-x")):
        by_kind: dict[str, list[LiveObject]] = {}
        for ref, value in each.objects.items():
            by_kind.setdefault(ref.kind, []).append(parse_live(ref.kind, json.dumps(value).encode()))
        found.append(by_kind)
    return found


def test_all_kinds_come_back_and_the_second_tenant_is_small(
    worlds: list[dict[str, list[LiveObject]]],
) -> None:
    total = 0
    for kind, first in worlds[0].items():
        codec = ObjectCodec(kind)
        packed = [codec.pack(each, is_sample=True) for each in (first, worlds[1][kind])]
        for text, expected in zip(packed, (first, worlds[1][kind]), strict=True):
            assert list(codec.unpack(text).values()) == expected
            assert ObjectCodec.count(text) == len(expected)
        total += len(packed[1])
    # With each object of its own, compressed, it were 25 KB.
    assert total < 7_000


@pytest.mark.parametrize("uid", ["3C6EF372-0000-4000-8000-000000000001", "1234567890123456", "", "uid-7"])
@pytest.mark.parametrize("pem", [ODD_PEM, b"", b"no certificate", b"x" + ODD_PEM, b"\xff\x00"])
def test_what_has_another_form_comes_back(uid: str, pem: bytes) -> None:
    live = LiveObject(
        LiveMeta("n", "ns", uid, "7", "2026-01-01T00:00:00Z", {"a": "b"}, {"c": "d"}),
        b"\x80",
        {"k": "ab" * 16},
        {"tls.crt": pem},
        {"tls.crt": None, "ca.crt": CertificateFacts(1.5, 2.0, "ab", "", "cd", ("x", "y"))},
    )
    codec = ObjectCodec("Secret")
    assert codec.unpack(codec.pack([live], is_sample=False)) == {Ref("Secret", "ns", "n"): live}


def test_texts_are_few_however_tenants_differ() -> None:
    codec = ObjectCodec("Job")
    packed = []
    for size in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000):
        live = LiveObject(LiveMeta("n", "ns", "u", "1"), str(size).encode() * size)
        packed.append((codec.pack([live], is_sample=True), live))
    assert max(text[0] for text, _ in packed) <= 4
    for text, live in packed:
        assert list(codec.unpack(text).values()) == [live]
