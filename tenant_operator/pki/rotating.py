# SPDX-License-Identifier: Apache-2.0
"""What each step of a rotation makes of the data of its Secret. It reads and writes nothing."""

import secrets
from collections.abc import Mapping

import msgspec

from tenancy import keys
from tenant_operator.model import names
from tenant_operator.pki.catalog import AuthoritySpec
from tenant_operator.pki.facts import SecretFacts, digest_of, secret_facts, valid_certificates
from tenant_operator.pki.issuing import (
    MAX_CHAIN,
    can_sign,
    certify_authority,
    encryption_key,
    key_id,
    new_authority,
    service_account_key,
    signing_pair,
)
from tenant_operator.pki.rotation import (
    REISSUED,
    RotationPlan,
    RotationState,
    RotationStep,
    annotations_after,
    can_take,
    state_of,
)

_KEY_NAME_BYTES = 4
_ROTATING = (
    keys.ROTATION_PHASE,
    keys.ROTATION_PHASE_SINCE,
    keys.ROTATION_TOKEN,
    keys.ROTATION_SINCE,
    keys.ROTATION_PROGRESS,
)


def new_service_account_keys() -> tuple[dict[str, bytes], dict[str, str]]:
    """Data and annotations of Secret `service-account-keys`."""
    pair = service_account_key()
    kid = key_id(pair.certificate_pem)
    data = {"signing.pem": pair.key_pem, f"{kid}.pub": pair.certificate_pem}
    return data | _verifying(data), {keys.KEY_IDS: kid}


def new_encryption_config() -> tuple[dict[str, bytes], dict[str, str]]:
    """Data and annotations of Secret `encryption-config`."""
    name = _key_name()
    return _encryption_config({name: encryption_key()}), {keys.KEY_IDS: name}


def rotate(
    plan: RotationPlan,
    step: RotationStep,
    data: Mapping[str, bytes],
    annotations: Mapping[str, str],
    now: float,
    *,
    request: str = "",
    spec: AuthoritySpec | None = None,
    progress: str = "",
) -> tuple[dict[str, bytes], dict[str, str]] | None:
    """Data and annotations of a Secret after a step of its rotation; None if the step was taken already.

    `spec` is of an authority that begins to rotate, `progress` how far what is stored was rewritten.
    """
    state = state_of(_facts(data, annotations))
    if state is None or not can_take(step, state):
        return None
    after = dict(data)
    ids = [state.current, state.next, state.previous]
    is_broken = step is RotationStep.BEGIN and spec is not None and not can_sign(data)
    if step is RotationStep.BEGIN:
        ids[1] = _begin(after, spec, plan, now)
    elif step is RotationStep.PROMOTE:
        if "next-chain.crt" in data:
            annotations = {keys.FIRST_LOADED: digest_of(data["tls.crt"]), **annotations}
        _promote(after, plan, now)
        ids = [state.next, "", state.current]
    elif step is RotationStep.DROP:
        _drop(after, plan, state)
        ids[2] = ""
    elif step is RotationStep.FORGET:
        after.pop("former.crt", None)
    found = {key: value for key, value in annotations.items() if key not in _ROTATING}
    found |= annotations_after(plan, state, step, request, now)
    if is_broken:
        # Edited by hand: nothing can be signed by this key, so the next one signs at once.
        _promote(after, plan, now)
        found[keys.ROTATION_PHASE] = REISSUED
        found.pop(keys.FIRST_LOADED, None)
    if step is RotationStep.REWRITE:
        found[keys.ROTATION_PROGRESS] = progress
    if keys.KEY_IDS in annotations:
        found[keys.KEY_IDS] = ",".join(ids).rstrip(",")
    return after, found


def _begin(data: dict[str, bytes], spec: AuthoritySpec | None, plan: RotationPlan, now: float) -> str:
    """Put the next key into the data; its id, of a key without a certificate."""
    if spec is not None:
        new = new_authority(spec, now)
        data |= {"next.crt": new.certificate_pem, "next.key": new.key_pem}
        # Without it, clients of an authority whose key is unusable, or that has expired, learn the next one.
        if spec.signs_below and can_sign(data) and valid_certificates(data["tls.crt"], now):
            data["next-chain.crt"] = certify_authority(spec, new, signing_pair(data), now)
    elif plan.secret == names.SERVICE_ACCOUNT_KEYS:
        key = service_account_key()
        kid = key_id(key.certificate_pem)
        data |= {"next.pem": key.key_pem, f"{kid}.pub": key.certificate_pem}
        data |= _verifying(data)
        return kid
    else:
        name = _key_name()
        data |= _encryption_config(_encryption_keys(data) | {name: encryption_key()})
        return name
    return ""


def _later(chain: bytes, now: float) -> bytes:
    """What leads on from the former authority to those before it: their pods and members may run still."""
    return b"".join(valid_certificates(chain, now)[: MAX_CHAIN - 1])


def _promote(data: dict[str, bytes], plan: RotationPlan, now: float) -> None:
    if plan.secret == names.SERVICE_ACCOUNT_KEYS:
        data["signing.pem"] = data.pop("next.pem")
    elif plan.secret == names.ENCRYPTION_CONFIG:
        data |= _encryption_config(dict(reversed(_encryption_keys(data).items())))
    else:
        data["previous.crt"] = data["tls.crt"]
        data["tls.crt"], data["tls.key"] = data.pop("next.crt"), data.pop("next.key")
        chain = data.pop("chain.crt", b"")
        if "next-chain.crt" in data:
            data["chain.crt"] = data.pop("next-chain.crt") + _later(chain, now)


def _drop(data: dict[str, bytes], plan: RotationPlan, state: RotationState) -> None:
    if plan.secret == names.SERVICE_ACCOUNT_KEYS:
        data.pop(f"{state.previous}.pub", None)
        data |= _verifying(data)
    elif plan.secret == names.ENCRYPTION_CONFIG:
        found = _encryption_keys(data)
        data |= _encryption_config({name: key for name, key in found.items() if name != state.previous})
    else:
        previous = data.pop("previous.crt", b"")
        if plan.forgotten_by:
            data["former.crt"] = previous


def _facts(data: Mapping[str, bytes], annotations: Mapping[str, str]) -> SecretFacts:
    digests = {key: digest_of(value) for key, value in data.items()}
    return secret_facts(
        annotations, digests, {key: value for key, value in data.items() if key.endswith(".crt")}
    )


def _verifying(data: Mapping[str, bytes]) -> dict[str, bytes]:
    """All public keys in one file: for API servers without vc-signer, which verify by it."""
    return {"verify.pem": b"".join(data[key] for key in sorted(data) if key.endswith(".pub"))}


def _key_name() -> str:
    """The name of a key of encryption at rest, which is stored with each value."""
    return f"key-{secrets.token_hex(_KEY_NAME_BYTES)}"


def _encryption_config(found: Mapping[str, str]) -> dict[str, bytes]:
    """The API server encrypts by the first key, and decrypts by all. JSON is YAML."""
    listed = [{"name": name, "secret": key} for name, key in found.items()]
    # `identity` reads what a backup has in plain text; nothing is written so.
    providers = [{"secretbox": {"keys": listed}}, {"identity": {}}]
    value = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": providers}],
    }
    return {"config.yaml": msgspec.json.encode(value)}


def _encryption_keys(data: Mapping[str, bytes]) -> dict[str, str]:
    value = msgspec.json.decode(data["config.yaml"])
    listed = value["resources"][0]["providers"][0]["secretbox"]["keys"]
    return {each["name"]: each["secret"] for each in listed}
