# SPDX-License-Identifier: Apache-2.0
"""What each step of a rotation makes of its Secret."""

import base64
import hashlib
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from tenancy import keys
from tenant_operator.pki import catalog, issuing, rotating
from tenant_operator.pki.catalog import CertificateUsage
from tenant_operator.pki.facts import digest_of
from tenant_operator.pki.rotation import DROPPED, PLANS, REISSUED, TRUSTED, RotationStep
from tests.unit.tenant_operator.pki import control_planes
from tests.unit.tenant_operator.pki.control_planes import NOW, accepts

BEGIN, PROMOTE, MARK, DROP = RotationStep.BEGIN, RotationStep.PROMOTE, RotationStep.MARK, RotationStep.DROP
PLANE = control_planes.control_plane()
AUTHORITIES = {spec.secret: spec for spec in catalog.authorities(PLANE)}
SPECS = {spec.secret: spec for spec in control_planes.specs(PLANE)}

Secret = tuple[dict[str, bytes], dict[str, str]]


def taken(found: Secret | None) -> Secret:
    assert found is not None
    return found


def begun(phase: str) -> dict[str, str]:
    return {keys.ROTATION_PHASE: phase, keys.ROTATION_PHASE_SINCE: str(int(NOW))}


@pytest.mark.parametrize("secret", AUTHORITIES)
def test_an_authority_rotates(secret: str) -> None:
    plan, spec = PLANS[secret], AUTHORITIES[secret]
    first = dict(issuing.authority_data(issuing.new_authority(spec, NOW)))
    both, notes = taken(rotating.rotate(plan, BEGIN, first, {"a": "b"}, NOW, request="one", spec=spec))
    chain = {"next-chain.crt"} if spec.signs_below else set()
    assert set(both) == {"tls.crt", "tls.key", "next.crt", "next.key"} | chain
    assert {key: both[key] for key in first} == first
    assert notes == {"a": "b", **begun(TRUSTED), keys.ROTATION_TOKEN: "one"}

    new, notes = taken(rotating.rotate(plan, PROMOTE, both, notes, NOW))
    assert set(new) == {"tls.crt", "tls.key", "previous.crt"} | ({"chain.crt"} if chain else set())
    assert (new["tls.crt"], new["tls.key"]) == (both["next.crt"], both["next.key"])
    assert new["previous.crt"] == first["tls.crt"]
    kept = {"a": "b"} | ({keys.FIRST_LOADED: digest_of(first["tls.crt"])} if chain else {})
    assert notes == kept | {**begun(REISSUED), keys.ROTATION_TOKEN: "one"}

    last, notes = taken(rotating.rotate(plan, DROP, new, notes, NOW))
    if plan.forgotten_by:
        present = {key: value for key, value in new.items() if key != "previous.crt"}
        assert last == present | {"former.crt": first["tls.crt"]}
        assert notes == kept | {**begun(DROPPED), keys.ROTATION_TOKEN: "one"}
        last, notes = taken(rotating.rotate(plan, RotationStep.FORGET, last, notes, NOW))
    assert set(last) == {"tls.crt", "tls.key"} | ({"chain.crt"} if chain else set())
    assert notes == kept | {keys.ROTATION_TOKEN: "one"}


def test_servers_of_the_next_authority_show_its_chain() -> None:
    plan, spec = PLANS["cluster-ca"], AUTHORITIES["cluster-ca"]
    data: dict[str, bytes] = dict(issuing.authority_data(issuing.new_authority(spec, NOW)))
    old, notes = data["tls.crt"], dict[str, str]()
    for step in (BEGIN, PROMOTE, DROP):
        data, notes = taken(rotating.rotate(plan, step, data, notes, NOW, request="one", spec=spec))
    server = issuing.issue_pair(SPECS["apiserver-serving"], issuing.signing_pair(data), NOW)
    assert accepts(old, CertificateUsage.SERVER, server)
    assert accepts(data["tls.crt"], CertificateUsage.SERVER, server)


@pytest.mark.parametrize("secret", ["cluster-ca", "etcd-ca"])
def test_earlier_authorities_accept_what_the_last_signs(secret: str) -> None:
    """A pod may run for all of these rotations, each of which restarts none."""
    plan, spec = PLANS[secret], AUTHORITIES[secret]
    leaf = "apiserver-serving" if secret == "cluster-ca" else "etcd-server"
    data: dict[str, bytes] = dict(issuing.authority_data(issuing.new_authority(spec, NOW)))
    loaded, notes = [data["tls.crt"]], dict[str, str]()
    for number in range(issuing.MAX_CHAIN + 1):
        request = str(number)
        for step in (BEGIN, PROMOTE, DROP, *([RotationStep.FORGET] if plan.forgotten_by else [])):
            data, notes = taken(rotating.rotate(plan, step, data, notes, NOW, request=request, spec=spec))
        loaded.append(data["tls.crt"])
        server = issuing.issue_pair(SPECS[leaf], issuing.signing_pair(data), NOW)
        accepted = [accepts(each, CertificateUsage.SERVER, server) for each in loaded]
        assert accepted == [number < issuing.MAX_CHAIN or each > 0 for each in range(len(loaded))]


@pytest.mark.parametrize("secret", ["cluster-ca", "etcd-ca"])
def test_what_has_expired_leads_nowhere(secret: str) -> None:
    plan, spec = PLANS[secret], AUTHORITIES[secret]
    data: dict[str, bytes] = dict(issuing.authority_data(issuing.new_authority(spec, NOW)))
    notes, chains = dict[str, str](), []
    for year in (5, 9, 11, 30):
        now = NOW + year * 365 * 86400
        for step in (BEGIN, PROMOTE, DROP, *([RotationStep.FORGET] if plan.forgotten_by else [])):
            data, notes = taken(rotating.rotate(plan, step, data, notes, now, request=str(now), spec=spec))
        chains.append(data.get("chain.crt", b"").count(b"BEGIN"))
    assert chains == [1, 2, 2, 0]


@pytest.mark.parametrize("name", ["etcd-server", "apiserver-etcd-client"])
def test_a_store_of_before_accepts_what_the_next_signs(name: str) -> None:
    """As a server and as a client: etcd and its clients have loaded the former authority for ever."""
    plan, spec = PLANS["etcd-ca"], AUTHORITIES["etcd-ca"]
    data: dict[str, bytes] = dict(issuing.authority_data(issuing.new_authority(spec, NOW)))
    old, notes = data["tls.crt"], dict[str, str]()
    for step in (BEGIN, PROMOTE, DROP, RotationStep.FORGET):
        data, notes = taken(rotating.rotate(plan, step, data, notes, NOW, request="one", spec=spec))
    leaf = issuing.issue_pair(SPECS[name], issuing.signing_pair(data), NOW)
    for usage in SPECS[name].usages:
        assert accepts(old, usage, leaf)
        assert accepts(data["tls.crt"], usage, leaf)


@pytest.mark.parametrize("secret", AUTHORITIES)
def test_an_authority_without_its_key_is_replaced_at_once(secret: str) -> None:
    """It signs nothing more. Those who trust it go on doing so, until all use the next one."""
    plan, spec = PLANS[secret], AUTHORITIES[secret]
    first = dict(issuing.authority_data(issuing.new_authority(spec, NOW)))
    other = issuing.new_authority(spec, NOW).key_pem
    for damage in (b"edited", other, b""):
        data = {**first, "tls.key": damage}
        found, notes = taken(rotating.rotate(plan, BEGIN, data, {}, NOW, request="one", spec=spec))
        assert set(found) == {"tls.crt", "tls.key", "previous.crt"}
        assert found["previous.crt"] == first["tls.crt"]
        assert issuing.can_sign(found)
        assert notes == {**begun(REISSUED), keys.ROTATION_TOKEN: "one"}


def test_a_certificate_that_is_unreadable_does_not_rotate() -> None:
    data = {"tls.crt": b"edited", "tls.key": b"edited"}
    spec = AUTHORITIES["etcd-ca"]
    assert rotating.rotate(PLANS["etcd-ca"], BEGIN, data, {}, NOW, request="one", spec=spec) is None


def test_service_account_keys_rotate() -> None:
    plan = PLANS["service-account-keys"]
    first, notes = rotating.new_service_account_keys()
    old = notes[keys.KEY_IDS]
    assert set(first) == {"signing.pem", "verify.pem", f"{old}.pub"}
    assert first["verify.pem"] == first[f"{old}.pub"]
    assert kid_of(first["signing.pem"]) == old
    assert load_pem_public_key(first[f"{old}.pub"]) == private(first["signing.pem"]).public_key()

    both, notes = taken(rotating.rotate(plan, BEGIN, first, notes, NOW, request="one"))
    new = kid_of(both["next.pem"])
    assert set(both) == {"signing.pem", "next.pem", "verify.pem", f"{old}.pub", f"{new}.pub"}
    assert both["verify.pem"].count(b"BEGIN PUBLIC KEY") == 2
    assert notes == {
        keys.KEY_IDS: f"{old},{new}",
        **begun(TRUSTED),
        keys.ROTATION_TOKEN: "one",
    }

    signing, notes = taken(rotating.rotate(plan, PROMOTE, both, notes, NOW))
    assert set(signing) == {"signing.pem", "verify.pem", f"{old}.pub", f"{new}.pub"}
    assert signing["signing.pem"] == both["next.pem"]
    assert notes[keys.KEY_IDS] == f"{new},,{old}"

    marked, notes = taken(rotating.rotate(plan, MARK, signing, notes, NOW + 5))
    assert marked == signing
    assert notes[keys.ROTATION_SINCE] == str(int(NOW) + 5)
    assert notes[keys.ROTATION_PHASE_SINCE] == str(int(NOW))

    last, notes = taken(rotating.rotate(plan, DROP, marked, notes, NOW))
    assert set(last) == {"signing.pem", "verify.pem", f"{new}.pub"}
    assert last["verify.pem"] == last[f"{new}.pub"]
    assert notes == {keys.KEY_IDS: new, keys.ROTATION_TOKEN: "one"}


def test_encryption_keys_rotate() -> None:
    plan = PLANS["encryption-key"]
    first, notes = rotating.new_encryption_config()
    (old,) = names_in(first)
    assert notes == {keys.KEY_IDS: old}
    both, notes = taken(rotating.rotate(plan, BEGIN, first, notes, NOW, request="one"))
    new = names_in(both)[1]
    assert names_in(both) == [old, new]
    promoted, notes = taken(rotating.rotate(plan, PROMOTE, both, notes, NOW))
    assert names_in(promoted) == [new, old]
    last, notes = taken(rotating.rotate(plan, DROP, promoted, notes, NOW))
    assert names_in(last) == [new]
    assert notes == {keys.KEY_IDS: new, keys.ROTATION_TOKEN: "one"}


def test_an_encryption_configuration() -> None:
    data, annotations = rotating.new_encryption_config()
    value = json.loads(data["config.yaml"])
    (key,) = value["resources"][0]["providers"][0]["secretbox"]["keys"]
    assert len(base64.b64decode(key.pop("secret"))) == 32
    assert value == {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [
            {
                "resources": ["secrets"],
                "providers": [
                    {"secretbox": {"keys": [{"name": annotations[keys.KEY_IDS]}]}},
                    {"identity": {}},
                ],
            }
        ],
    }


@pytest.mark.parametrize("what", ["etcd-ca", "service-account-keys", "encryption-key"])
def test_a_step_that_was_taken_is_not_taken_again(what: str) -> None:
    """Each step is one write. Whoever comes late, with the same decision, changes nothing."""
    plan, spec = PLANS[what], AUTHORITIES.get(what)
    data, annotations = first_of(what)
    steps = [BEGIN, PROMOTE, DROP, *([RotationStep.FORGET] if plan.forgotten_by else [])]
    for step, following in zip(steps, [*steps[1:], BEGIN], strict=True):
        data, annotations = taken(
            rotating.rotate(plan, step, data, annotations, NOW, request="one", spec=spec)
        )
        assert rotating.rotate(plan, step, data, annotations, NOW, request="one", spec=spec) is None
        for other in {*steps} - {step, following}:
            assert rotating.rotate(plan, other, data, annotations, NOW, spec=spec) is None


def first_of(what: str) -> Secret:
    if what == "service-account-keys":
        return rotating.new_service_account_keys()
    if what == "encryption-key":
        return rotating.new_encryption_config()
    return dict(issuing.authority_data(issuing.new_authority(AUTHORITIES[what], NOW))), {}


def names_in(data: dict[str, bytes]) -> list[str]:
    providers = json.loads(data["config.yaml"])["resources"][0]["providers"]
    return [key["name"] for key in providers[0]["secretbox"]["keys"]]


def private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def kid_of(pem: bytes) -> str:
    """As kube-apiserver computes a key's id (pkg/serviceaccount/jwt.go, keyIDFromPublicKey)."""
    der = private(pem).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")
