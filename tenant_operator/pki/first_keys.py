# SPDX-License-Identifier: Apache-2.0
"""The first keys that have no certificate: data and annotations of their Secrets. It writes nothing."""

import base64
import hashlib
import secrets
from collections.abc import Mapping

import msgspec

from tenancy import keys
from tenant_operator.pki.issuing import encryption_key, service_account_key

_KEY_NAME_BYTES = 4


def new_service_account_keys() -> tuple[dict[str, bytes], dict[str, str]]:
    """Data and annotations of Secret `service-account-keys`."""
    pair = service_account_key()
    kid = _kid(pair.certificate_pem)
    data = {"signing.pem": pair.key_pem, f"{kid}.pub": pair.certificate_pem}
    return data, {keys.KEY_IDS: kid}


def new_encryption_config() -> tuple[dict[str, bytes], dict[str, str]]:
    """Data and annotations of Secret `encryption-config`."""
    name = _key_name()
    return _encryption_config({name: encryption_key()}), {keys.KEY_IDS: name}


def _kid(public_pem: bytes) -> str:
    """A key's id as kube-apiserver makes it: the SHA-256 of its SubjectPublicKeyInfo."""
    der = base64.b64decode(b"".join(public_pem.splitlines()[1:-1]))
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode("ascii")


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
