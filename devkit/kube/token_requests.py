# SPDX-License-Identifier: Apache-2.0
"""Answers to TokenRequests: tokens in the form of a JWT, with a signature that nothing verifies."""

import base64

import msgspec

from daemonkit.kube.resources import NODES, PODS, SECRETS, Resource
from devkit.kube.storage import Object, StatusError, Storage, conflict
from devkit.kube.times import at

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
ISSUER = "https://kubernetes.default.svc"

_BOUND = {"Pod": PODS, "Secret": SECRETS, "Node": NODES}


def answer(storage: Storage, namespace: str, name: str, request: Object, now_s: float) -> Object:
    """The TokenRequest with its status. Raises StatusError 404, 409 and 422."""
    account = storage.get(SERVICE_ACCOUNTS, namespace, name)
    asked = request.get("spec") or {}
    audiences = asked.get("audiences") or [ISSUER]
    expires_in_s = asked.get("expirationSeconds") or 3600
    if expires_in_s < 600:
        message = "spec.expirationSeconds: Invalid value: may not specify a duration less than 10 minutes"
        raise StatusError(422, "Invalid", message)
    claims: Object = {"namespace": namespace, "serviceaccount": _reference(account)}
    spec = {"audiences": audiences, "expirationSeconds": expires_in_s}
    reference = asked.get("boundObjectRef")
    if reference:
        bound = _bound(storage, namespace, reference)
        claims[reference["kind"].lower()] = _reference(bound)
        if node := (bound.get("spec") or {}).get("nodeName"):
            claims["node"] = {"name": node}
        spec["boundObjectRef"] = reference
    payload = {
        "aud": audiences,
        "exp": int(now_s) + expires_in_s,
        "iat": int(now_s),
        "iss": ISSUER,
        "kubernetes.io": claims,
        "nbf": int(now_s),
        "sub": f"system:serviceaccount:{namespace}:{name}",
    }
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": at(now_s)},
        "spec": spec,
        "status": {"token": _token(payload), "expirationTimestamp": at(now_s + expires_in_s)},
    }


def claims_of(token: str) -> Object:
    """What a token of `answer` says."""
    payload = token.split(".")[1]
    return msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=Object)


def _bound(storage: Storage, namespace: str, reference: Object) -> Object:
    resource = _BOUND.get(reference["kind"])
    if resource is None:
        raise StatusError(400, "BadRequest", f"cannot bind token for object of type {reference['kind']}")
    found = storage.get(resource, namespace if resource.is_namespaced else "", reference["name"])
    if reference.get("uid") not in (None, "", found["metadata"]["uid"]):
        why = "the UID in the bound object reference does not match the UID in record"
        raise conflict(resource, reference["name"], why)
    return found


def _reference(value: Object) -> Object:
    return {"name": value["metadata"]["name"], "uid": value["metadata"]["uid"]}


def _token(payload: Object) -> str:
    header = {"alg": "none", "typ": "JWT"}
    parts = (msgspec.json.encode(header), msgspec.json.encode(payload), b"no signature")
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
