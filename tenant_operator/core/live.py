# SPDX-License-Identifier: Apache-2.0
"""The operator's own objects as they are in the super cluster, and whether each is as it should be.

Of a Secret only digests and certificates are kept, never a key. The rest is kept compressed: a thousand
tenants have
thirty thousand objects.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from tenancy import keys
from tenant_operator.model.objects import Object
from tenant_operator.pki.facts import digest_of

# No reader needs them, and they are half of an object.
_DROPPED_METADATA = ("managedFields", "creationTimestamp", "selfLink")
_ENCODER = msgspec.json.Encoder()


class LiveMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}

    @property
    def owner_uid(self) -> str:
        """The UID of the VirtualCluster that it was made for."""
        return self.labels.get(keys.VC_UID, "")


class LiveObject(msgspec.Struct, frozen=True):
    """One object. `digests` are of a Secret's or ConfigMap's values, `certificates` what is public of a
    Secret."""

    metadata: LiveMeta
    body: bytes = b""
    digests: dict[str, str] = {}
    certificates: dict[str, bytes] = {}

    @property
    def value(self) -> Object:
        """The object, decoded anew at each access; a Secret without its data."""
        found: Object = msgspec.json.decode(zlib.decompress(self.body))
        return found

    @property
    def is_ending(self) -> bool:
        """Whether it is being deleted."""
        return bool(self.metadata.deletion_timestamp)


class _SecretShape(msgspec.Struct, frozen=True):
    metadata: LiveMeta
    data: dict[str, bytes] = {}


class _HeadOnly(msgspec.Struct, frozen=True):
    metadata: LiveMeta


def parse_secret(raw: msgspec.Raw | bytes) -> LiveObject:
    """A Secret: digests of all values, and the values that are certificates."""
    found = msgspec.json.decode(raw, type=_SecretShape)
    return LiveObject(
        found.metadata,
        digests={key: digest_of(value) for key, value in found.data.items()},
        certificates={key: value for key, value in found.data.items() if key.endswith(".crt")},
    )


def parse_config_map(raw: msgspec.Raw | bytes) -> LiveObject:
    """A ConfigMap, with digests of its values."""
    value = msgspec.json.decode(raw)
    meta = msgspec.convert(value["metadata"], LiveMeta)
    data = value.get("data") or {}
    return LiveObject(
        meta, _compressed(value), digests={key: digest_of(text.encode()) for key, text in data.items()}
    )


def parse_object(raw: msgspec.Raw | bytes) -> LiveObject:
    """An object of any other kind."""
    value = msgspec.json.decode(raw)
    return LiveObject(msgspec.convert(value["metadata"], LiveMeta), _compressed(value))


def _compressed(value: Object) -> bytes:
    for key in _DROPPED_METADATA:
        value["metadata"].pop(key, None)
    return zlib.compress(_ENCODER.encode(value), 1)


def contains(live: Any, desired: Any) -> bool:
    """Whether a value as the API server has it has all that is desired; it fills in defaults, and may have
    more.

    Lists of objects with a `name` are compared by name, as server-side apply merges them; others by place.
    """
    if isinstance(desired, Mapping):
        return isinstance(live, Mapping) and all(
            contains(live[key], value) if key in live else _is_empty(value) for key, value in desired.items()
        )
    if isinstance(desired, list | tuple):
        if not isinstance(live, list) or len(live) < len(desired):
            return not desired and live is None
        if desired and all(isinstance(each, Mapping) and "name" in each for each in desired):
            named = {each.get("name"): each for each in live if isinstance(each, Mapping)}
            return len(live) == len(desired) and all(
                each["name"] in named and contains(named[each["name"]], each) for each in desired
            )
        return len(live) == len(desired) and all(map(contains, live, desired))
    return bool(live == desired)


def _is_empty(value: object) -> bool:
    """What the API server leaves out, as it is a type's zero."""
    return (
        value is None or value is False or value in ("", 0) or (isinstance(value, list | dict) and not value)
    )


def is_as_desired(live: LiveObject, desired: Object) -> bool:
    """Whether an object needs no write. Of a Secret with `data` only the digests can be compared."""
    meta = desired["metadata"]
    if not contains(live.metadata.labels, meta.get("labels", {})):
        return False
    if not contains(live.metadata.annotations, meta.get("annotations", {})):
        return False
    rest = {key: value for key, value in desired.items() if key not in ("metadata", "apiVersion", "kind")}
    if desired["kind"] == "Secret":
        return _has_values(live, rest)
    return contains(live.value, rest)


def _has_values(live: LiveObject, rest: Object) -> bool:
    values: Mapping[str, str] = rest.get("data", {})
    return all(live.digests.get(key) == digest_of(base64.b64decode(value)) for key, value in values.items())
