# SPDX-License-Identifier: Apache-2.0
"""Which authorities API servers name, which leaf they show, and what aggregated ones trust."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from tenancy import x509
from tenant_operator.edge import authority_keys
from tenant_operator.edge.authority_keys import AUTHENTICATION, RotatingAuthority, read_authority
from tenant_operator.edge.control_plane_pods import ComponentPod
from tenant_operator.pki import catalog, issuing
from tenant_operator.pki.facts import der_of, facts_of
from tenant_operator.pki.handshake import ServerFlight
from tenant_operator.pki.issuing import IssuedPair
from tenant_operator.pki.rotation import ConsumerAnswer
from tests.unit.tenant_operator.edge.api_answers import FakeAnswers
from tests.unit.tenant_operator.pki import control_planes
from tests.unit.tenant_operator.pki.control_planes import NOW

pytestmark = pytest.mark.asyncio

SPEC = next(each for each in catalog.AUTHORITIES if each.secret == "front-proxy-ca")
LEAF_SPEC = next(each for each in control_planes.specs() if each.secret == "front-proxy-client")
OLD, NEW = (issuing.new_authority(SPEC, NOW) for _ in range(2))
LEAF = issuing.issue_pair(LEAF_SPEC, NEW, NOW)
OLD_ID, NEW_ID = (facts_of(each.certificate_pem).key_id for each in (OLD, NEW))
SUBJECTS = [x509.subject(der_of(each.certificate_pem)) for each in (OLD, NEW)]


def secret(**data: bytes) -> dict[str, Any]:
    found = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}
    return {"metadata": {"name": "front-proxy-ca", "namespace": "key"}, "data": found}


def read(key: str = "previous_crt") -> RotatingAuthority:
    return read_authority(
        secret(tls_crt=NEW.certificate_pem, **{key: OLD.certificate_pem}),
        secret(tls_crt=LEAF.certificate_pem),
    )


async def test_an_api_server_names_whom_it_trusts() -> None:
    """What it shows as a client is known of one that started with the present leaf."""
    started, other = ComponentPod("a", "10.0.0.1", "d", is_ready=True), ComponentPod("b", "10.0.0.2", "c")
    both, one = ServerFlight((), frozenset({*SUBJECTS, b"x"})), ServerFlight((), frozenset(SUBJECTS[1:]))
    assert read().of_server(both, started, "d") == ConsumerAnswer(
        frozenset({OLD_ID, NEW_ID}), frozenset({NEW_ID})
    )
    assert read().of_server(one, other, "d") == ConsumerAnswer(
        frozenset({NEW_ID}), frozenset({OLD_ID, NEW_ID})
    )
    gateway = read_authority(secret(tls_crt=NEW.certificate_pem), None)
    assert gateway.of_server(one, other, "d") == ConsumerAnswer(frozenset({NEW_ID}))


async def test_what_is_published_is_cleaned_of_the_former() -> None:
    """Kubernetes adds to the ConfigMap and never removes."""
    bundle = (OLD.certificate_pem + NEW.certificate_pem).decode()
    data = {"requestheader-client-ca-file": bundle, "client-ca-file": "other"}
    value = {"metadata": {"resourceVersion": "9"}, "data": data}
    client = FakeAnswers({f"GET {AUTHENTICATION}": value, f"PATCH {AUTHENTICATION}": {}})
    found = read("former_crt")
    assert await authority_keys.published(client, found) == {  # type: ignore[arg-type]
        "": ConsumerAnswer(frozenset({OLD_ID, NEW_ID}))
    }
    await authority_keys.unpublish(client, found)  # type: ignore[arg-type]
    assert json.loads(client.bodies[-1]) == {
        "metadata": {"resourceVersion": "9"},
        "data": {"requestheader-client-ca-file": NEW.certificate_pem.decode()},
    }


CLUSTER_SPEC = next(each for each in catalog.AUTHORITIES if each.secret == "cluster-ca")
MANAGER_SPEC = next(each for each in control_planes.specs() if each.secret == "controller-manager-client")
SERVING_SPEC = next(each for each in control_planes.specs() if each.secret == "apiserver-serving")


def read_cluster() -> tuple[RotatingAuthority, IssuedPair, IssuedPair]:
    """The authority of a cluster that is reissued, with the previous one and the present one."""
    old, new = (issuing.new_authority(CLUSTER_SPEC, NOW) for _ in range(2))
    found = secret(tls_crt=new.certificate_pem, previous_crt=old.certificate_pem)
    found["metadata"]["name"] = "cluster-ca"
    leaf = secret(tls_crt=issuing.issue_pair(MANAGER_SPEC, new, NOW).certificate_pem)
    return read_authority(found, leaf), old, new


async def test_a_server_shows_by_whom_it_was_signed() -> None:
    authority, old, new = read_cluster()
    served = der_of(issuing.issue_pair(SERVING_SPEC, old, NOW).certificate_pem)
    subjects = frozenset(x509.subject(der_of(each.certificate_pem)) for each in (old, new))
    old_id, new_id = (facts_of(each.certificate_pem).key_id for each in (old, new))
    assert authority.of_flight(ServerFlight((served,), subjects)) == ConsumerAnswer(
        frozenset({old_id, new_id}), frozenset({old_id})
    )


async def test_who_reads_files_once_answers_by_its_template() -> None:
    authority, old, new = read_cluster()
    old_id, new_id = (facts_of(each.certificate_pem).key_id for each in (old, new))
    started = ComponentPod("a", "10.0.0.1", "d", is_ready=True)
    assert authority.of_started(started, "d") == ConsumerAnswer(
        frozenset({old_id, new_id}), frozenset({new_id})
    )
    assert authority.of_started(started, "other") is None


def root_page(texts: dict[str, str], token: str = "") -> dict[str, Any]:
    items = [
        {"metadata": {"namespace": name, "name": "kube-root-ca.crt"}, "data": {"ca.crt": text}}
        for name, text in texts.items()
    ]
    return {"metadata": {"continue": token}, "items": items}


async def test_namespaces_with_other_root_certificates_are_named() -> None:
    """A tenant may write anything there; kube-controller-manager writes it again."""
    authority, old, new = read_cluster()
    old_id, new_id = (facts_of(each.certificate_pem).key_id for each in (old, new))
    both = (old.certificate_pem + new.certificate_pem).decode()
    garbage = "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n"
    pages = [
        root_page({"a": both, "b": new.certificate_pem.decode(), "c": garbage, "d": "", "e": both}, "more"),
        root_page({"f": both}),
    ]
    client = FakeAnswers({"GET /api/v1/configmaps": pages})
    assert await authority_keys.root_certificates(client, authority) == {  # type: ignore[arg-type]
        "": ConsumerAnswer(frozenset({old_id, new_id})),
        "b": ConsumerAnswer(frozenset({new_id})),
        "c": ConsumerAnswer(),
        "d": ConsumerAnswer(),
    }
    selector = {"fieldSelector": "metadata.name=kube-root-ca.crt", "limit": "500"}
    assert [params for _, params in client.requests] == [selector, selector | {"continue": "more"}]


async def test_more_namespaces_than_are_read_are_unknown() -> None:
    authority, old, new = read_cluster()
    both = (old.certificate_pem + new.certificate_pem).decode()
    client = FakeAnswers({"GET /api/v1/configmaps": root_page({"a": both}, "more")})
    found = await authority_keys.root_certificates(client, authority)  # type: ignore[arg-type]
    assert found == {"more": None}
    assert len(client.requests) == 200


async def test_no_more_is_read_than_is_named() -> None:
    """A rotation waits for the first ones; their names are enough."""
    authority, _, _ = read_cluster()
    texts = {f"n{number:02}": "" for number in range(40)}
    client = FakeAnswers({"GET /api/v1/configmaps": root_page(texts, "more")})
    found = await authority_keys.root_certificates(client, authority)  # type: ignore[arg-type]
    assert found == {"": ConsumerAnswer(authority.trusted)} | dict.fromkeys(
        list(texts)[:20], ConsumerAnswer()
    )
    assert len(client.requests) == 1


@pytest.mark.parametrize("different", [1, 2, 3, 7, 40])
async def test_each_text_is_parsed_once(different: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant writes as many texts as it likes, in any order; between two that are parsed others have a
    turn."""
    authority, old, new = read_cluster()
    both = (old.certificate_pem + new.certificate_pem).decode()
    parsed: list[str] = []

    def count(_: RotatingAuthority, pem: bytes) -> ConsumerAnswer:
        parsed.append(pem.decode())
        return ConsumerAnswer(authority.trusted)

    others, found = 0, None

    async def read_all() -> None:
        nonlocal found
        found = await authority_keys.root_certificates(client, authority)  # type: ignore[arg-type]

    async def other() -> None:
        nonlocal others
        while found is None:
            others += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(RotatingAuthority, "of_bundle", count)
    texts = {f"n{number}": both + "#" * (number % different) for number in range(400)}
    client = FakeAnswers({"GET /api/v1/configmaps": root_page(texts)})
    await asyncio.gather(read_all(), other())
    assert found == {"": ConsumerAnswer(authority.trusted)}
    assert parsed == [both + "#" * number for number in range(different)]
    assert others >= different


async def test_a_long_text_is_a_tenants_own() -> None:
    authority, old, new = read_cluster()
    both = (old.certificate_pem + new.certificate_pem).decode()
    client = FakeAnswers({"GET /api/v1/configmaps": root_page({"a": both + "#" * (64 << 10), "b": both})})
    assert await authority_keys.root_certificates(client, authority) == {  # type: ignore[arg-type]
        "": ConsumerAnswer(authority.trusted),
        "a": ConsumerAnswer(),
    }


async def test_clients_of_aggregated_servers_are_of_the_cluster() -> None:
    """They verify clients by another bundle than the front proxy."""
    authority, old, new = read_cluster()
    data = {"client-ca-file": (old.certificate_pem + new.certificate_pem).decode()}
    client = FakeAnswers({f"GET {AUTHENTICATION}": {"metadata": {}, "data": data}})
    ids = frozenset(facts_of(each.certificate_pem).key_id for each in (old, new))
    assert await authority_keys.published(client, authority) == {  # type: ignore[arg-type]
        "": ConsumerAnswer(ids)
    }


async def test_without_a_former_authority_nothing_is_removed() -> None:
    value = {"metadata": {"resourceVersion": "9"}, "data": {}}
    client = FakeAnswers({f"GET {AUTHENTICATION}": value, f"PATCH {AUTHENTICATION}": {}})
    with pytest.raises(ValueError, match="former"):
        await authority_keys.unpublish(client, read())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["no certificate", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n", "a\u00e9"]
)
async def test_what_is_no_certificate_stays(text: str) -> None:
    """A tenant wrote it; the former authority goes all the same."""
    former = read("former_crt")
    bundle = OLD.certificate_pem.decode() + NEW.certificate_pem.decode() + text
    value = {"metadata": {"resourceVersion": "9"}, "data": {"requestheader-client-ca-file": bundle}}
    client = FakeAnswers({f"GET {AUTHENTICATION}": value, f"PATCH {AUTHENTICATION}": {}})
    await authority_keys.unpublish(client, former)  # type: ignore[arg-type]
    kept = json.loads(client.bodies[-1])["data"]["requestheader-client-ca-file"]
    assert kept == NEW.certificate_pem.decode() + text
