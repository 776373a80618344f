# SPDX-License-Identifier: Apache-2.0
"""vc-signer beside an API server, as in one pod."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Mapping
from pathlib import Path

from devkit.secret_mount import SecretMount
from tests.k8s.ring.api import JsonObject, KubernetesApi, TlsEndpoint
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingError, RingProcess

ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/robot"
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class RingSigner:
    """A signer with its keys, its socket and its probes."""

    def __init__(
        self, directory: Path, namespace: NetworkNamespace, files: Mapping[str, bytes], port: int
    ) -> None:
        directory.mkdir()
        self.socket = directory / "signer.sock"
        self.keys = SecretMount(directory / "keys", files)
        self._namespace, self._port = namespace, port
        program = [sys.executable, "-m", "vc_signer", "--keys", str(self.keys.directory)]
        self.process = RingProcess(
            "vc-signer",
            [*namespace.enter, *program, "--socket", str(self.socket), "--probe-port", str(port)],
            directory / "signer.log",
        )

    def probe(self, path: str = "/readyz") -> tuple[int, str]:
        """Status and body; 0 where nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.sock = self._namespace.connect("127.0.0.1", self._port, timeout_s=5)
        except OSError:
            return 0, ""
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


def token(api: KubernetesApi) -> str:
    """A new token of the account. Raises `RingError`."""
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    found: str = api.create(f"{ACCOUNT}/token", asked)["status"]["token"]
    return found


def is_valid(endpoint: TlsEndpoint, text: str) -> bool:
    """Whether an API server takes a token."""
    body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
    headers = {"Authorization": f"Bearer {text}", "Content-Type": "application/json"}
    status = endpoint.request("POST", REVIEW, body=body, headers=headers).status
    if status not in (201, 401):
        raise RingError(f"{REVIEW}: {status}")
    return status == 201


def published(api: KubernetesApi) -> set[str]:
    """The ids of the keys in the discovery document."""
    document: JsonObject = api.get("/openid/v1/jwks")
    return {each["kid"] for each in document["keys"]}
