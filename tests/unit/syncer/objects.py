# SPDX-License-Identifier: Apache-2.0
"""Objects that a tenant makes in its Namespace `web`, for the tests of a whole syncer."""

from typing import Any

from devkit.kube.storage import Object


def pod(name: str, **spec: Any) -> Object:
    containers = [{"name": "c", "image": "i"}]
    return _object("Pod", name, spec={"containers": containers, **spec})


def pod_with_token(name: str, expiration_s: int) -> Object:
    """A pod that mounts one token of its service account, at `/t/token`."""
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": expiration_s}}
    value = pod(name, volumes=[{"name": "t", "projected": {"sources": [token]}}])
    value["spec"]["containers"][0]["volumeMounts"] = [{"name": "t", "mountPath": "/t"}]
    return value


def service(name: str, **spec: Any) -> Object:
    return _object("Service", name, spec=spec)


def config_map(name: str, text: str = "x") -> Object:
    return _object("ConfigMap", name, data={"text": text})


def claim(name: str, **spec: Any) -> Object:
    return _object("PersistentVolumeClaim", name, spec=spec)


def _object(kind: str, name: str, **fields: Any) -> Object:
    return {"kind": kind, "metadata": {"namespace": "web", "name": name}, **fields}
