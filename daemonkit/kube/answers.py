# SPDX-License-Identifier: Apache-2.0
"""Decodes what an API server answered. A tenant's may answer anything."""

from typing import TypeVar

import msgspec

from daemonkit.kube import deep_json
from daemonkit.kube.client import UnreachableError

T = TypeVar("T")


def decoded(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    """The value of an answer. Raises UnreachableError for no JSON, another type, or too many values.

    The text of the error names a place and a type, never a value.
    """
    if deep_json.has_too_many_values(body):
        raise UnreachableError(f"the answer has more than {deep_json.MAX_VALUES} values")
    try:
        return deep_json.decode(decoder, body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreachableError(f"the answer is no object: {error}") from None
