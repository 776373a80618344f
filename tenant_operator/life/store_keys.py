# SPDX-License-Identifier: Apache-2.0
"""Keys by which a restored store's Secrets are read, beside those that are there. Pure."""

from typing import Any

import msgspec

CONFIG = "config.yaml"


def with_keys_of(config: bytes, other: bytes) -> bytes:
    """An EncryptionConfiguration that writes as `config` does, and also reads what `other` wrote.

    Raises ValueError if one of them is not of the operator's form.
    """
    value, keys = _read(config)
    for each in _read(other)[1]:
        if each not in keys:
            keys.append(each)
    return msgspec.json.encode(value)


def _read(config: bytes) -> tuple[Any, list[Any]]:
    """The document, and its list of keys: the first writes, all read."""
    try:
        value = msgspec.json.decode(config)
        keys = value["resources"][0]["providers"][0]["secretbox"]["keys"]
    except (msgspec.DecodeError, LookupError, TypeError):
        keys = None
    if not isinstance(keys, list):
        raise ValueError("no EncryptionConfiguration with a list of secretbox keys")
    return value, keys
