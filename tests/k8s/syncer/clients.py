# SPDX-License-Identifier: Apache-2.0
"""Certificates of a tenant's own clients, which vn-agent serves the pages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager

from devkit.pki import Leaf
from tests.k8s.ring.api import JsonObject
from tests.k8s.syncer.shops import Shop, object_of

_NAME = "vn-agent-clients"


@contextmanager
def registered(shop: Shop, *names: str) -> Iterator[list[Leaf]]:
    """A certificate of the tenant's authority for each name, with role `metrics`.

    The operator registers all of them in one object of the tenant's root namespace.
    """
    leaves = [shop.tenant.apiserver.authority.issue(name, usages=("client",)) for name in names]
    path = f"/api/v1/namespaces/{shop.tenant.key}/configmaps"
    made = object_of("v1", "ConfigMap", _NAME)
    # JSON is YAML.
    clients = [{"spkiSHA256": leaf.spki_sha256, "role": "metrics"} for leaf in leaves]
    made["data"] = {"clients.yaml": json.dumps(clients)}
    shop.super_api.create(path, made)
    try:
        yield leaves
    finally:
        shop.super_api.delete(f"{path}/{_NAME}")


def tls_secret(name: str, leaf: Leaf, authority_pem: bytes) -> JsonObject:
    """A Secret for such a client: its certificate, and the authority of vn-agent's certificate."""
    content = {"tls.crt": leaf.cert_pem, "tls.key": leaf.key_pem, "ca.crt": authority_pem}
    secret = object_of("v1", "Secret", name)
    secret["data"] = {key: base64.b64encode(value).decode() for key, value in content.items()}
    return secret
