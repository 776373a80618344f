# SPDX-License-Identifier: Apache-2.0
"""The sizes that a cluster refuses. Checked against kube-apiserver by test_contract_of_writes.py.

etcd measures protobuf, and here it is JSON: for objects that are text for the most part they are close.
"""

import msgspec

from daemonkit.kube.resources import CONFIG_MAPS, SECRETS, Resource
from devkit.kube.storage import Object, StatusError, invalid

# apimachinery, TotalAnnotationSizeLimitB: keys and values.
MAX_ANNOTATIONS_BYTES = 256 << 10
# core, MaxSecretSize; the same for ConfigMaps: values alone.
MAX_DATA_BYTES = 1 << 20
# etcd, --max-request-bytes.
MAX_OBJECT_BYTES = 3 << 19
# kube-apiserver, MaxRequestBodyBytes.
MAX_REQUEST_BYTES = 3 << 20


def check_request(body: bytes) -> None:
    """Raise StatusError 413 for a body that is not read."""
    if len(body) > MAX_REQUEST_BYTES:
        message = f"Request entity too large: limit is {MAX_REQUEST_BYTES}"
        raise StatusError(413, "RequestEntityTooLarge", message)


def check_object(resource: Resource, value: Object) -> None:
    """Raise StatusError for an object that is not stored."""
    name, notes = value["metadata"]["name"], value["metadata"].get("annotations") or {}
    if sum(len(key.encode()) + len(text.encode()) for key, text in notes.items()) > MAX_ANNOTATIONS_BYTES:
        why = f"metadata.annotations: Too long: may not be more than {MAX_ANNOTATIONS_BYTES} bytes"
        raise invalid(resource, name, why)
    if resource == CONFIG_MAPS:
        data = sum(len(text.encode()) for text in (value.get("data") or {}).values())
    elif resource == SECRETS:
        data = sum(len(text) * 3 // 4 for text in (value.get("data") or {}).values())
    else:
        data = 0
    if data > MAX_DATA_BYTES:
        field = '""' if resource == CONFIG_MAPS else "data"
        raise invalid(resource, name, f"{field}: Too long: may not be more than {MAX_DATA_BYTES} bytes")
    if len(msgspec.json.encode(value)) > MAX_OBJECT_BYTES:
        raise StatusError(500, "", "etcdserver: request is too large")
