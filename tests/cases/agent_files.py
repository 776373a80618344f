# SPDX-License-Identifier: Apache-2.0
"""The files that a vn-agent under test reads: its configuration, and one file per tenant."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tenancy import keys

NODE = "node-1"


def configuration(directory: Path, *, kubelet_port: int, pods: Mapping[str, Any]) -> dict[str, Any]:
    """A VnAgentConfiguration whose files all lie in `directory`; `pods` is its section."""
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "VnAgentConfiguration",
        "nodeName": NODE,
        "listen": {"address": "127.0.0.1", "port": 0},
        "serving": {
            "certificateFile": str(directory / "serving.crt"),
            "keyFile": str(directory / "serving.key"),
        },
        "kubelet": {
            "address": "127.0.0.1",
            "port": kubelet_port,
            "caFile": str(directory / "kubelet-ca.crt"),
            "serverName": NODE,
            "clientCertificateFile": str(directory / "agent.crt"),
            "clientKeyFile": str(directory / "agent.key"),
        },
        "tenants": {"directory": str(directory / "tenants")},
        "pods": dict(pods),
        "stateDirectory": str(directory / "state"),
        "audit": {"file": str(directory / "audit.jsonl")},
        "status": {"socket": str(directory / "status.sock")},
    }


def tenant_document(
    key: str, authority_pem: bytes, clients: Iterable[tuple[str, str]], **spec: object
) -> dict[str, Any]:
    """A Tenant. `clients` are pairs of an SPKI hash and a role."""
    return {
        "apiVersion": keys.API_VERSION,
        "kind": keys.TENANT_KIND,
        "metadata": {"name": key},
        "spec": {
            "certificateAuthority": authority_pem.decode(),
            "clients": [{"spkiSHA256": spki, "role": role} for spki, role in clients],
            **spec,
        },
    }
