# SPDX-License-Identifier: Apache-2.0
"""Which authorities API servers name, which leaf they show, and what aggregated ones trust."""

from __future__ import annotations

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


async def test_without_a_former_authority_nothing_is_removed() -> None:
    value = {"metadata": {"resourceVersion": "9"}, "data": {}}
    client = FakeAnswers({f"GET {AUTHENTICATION}": value, f"PATCH {AUTHENTICATION}": {}})
    with pytest.raises(ValueError, match="former"):
        await authority_keys.unpublish(client, read())  # type: ignore[arg-type]
