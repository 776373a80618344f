# SPDX-License-Identifier: Apache-2.0
"""What an API server answers becomes an object, or an error that has nothing of it."""

from typing import Any

import msgspec
import pytest

from daemonkit.kube import deep_json
from daemonkit.kube.answers import decoded
from daemonkit.kube.client import UnreachableError

OBJECT = msgspec.json.Decoder(dict[str, Any])


def test_an_object_is_decoded() -> None:
    assert decoded(OBJECT, b'{"metadata":{"name":"a"}}') == {"metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'["secret"]', "no object"),
        (b'"secret"', "no object"),
        (b'{"secret"', "no object"),
        (b'{"a":"secret\xff"}', "no object"),
        (b"", "no object"),
        (b'{"secret":' + b"[" * 20_000 + b"]" * 20_000 + b"}", "no object"),
        (b'{"secret":[' + b"1," * deep_json.MAX_VALUES + b"1]}", "more than"),
    ],
    ids=["list", "text", "cut", "not-utf-8", "empty", "deep", "many"],
)
def test_what_is_none_is_an_error(body: bytes, reason: str) -> None:
    with pytest.raises(UnreachableError, match=reason) as caught:
        decoded(OBJECT, body)
    assert "secret" not in str(caught.value)
