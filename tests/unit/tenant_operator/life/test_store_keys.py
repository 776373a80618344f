# SPDX-License-Identifier: Apache-2.0
"""Which keys read a restored store."""

import json
from typing import Any

import pytest

from tenant_operator.life.store_keys import with_keys_of


def config(*names: str) -> bytes:
    keys = [{"name": name, "secret": f"secret of {name}"} for name in names]
    providers: list[Any] = [{"secretbox": {"keys": keys}}, {"identity": {}}]
    return json.dumps({"resources": [{"resources": ["secrets"], "providers": providers}]}).encode()


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (("new",), ("old",), ("new", "old")),
        (("same",), ("same",), ("same",)),
        # The first writes, and stays the first.
        (("b",), ("a", "b"), ("b", "a")),
        (("b", "c"), ("c", "a"), ("b", "c", "a")),
    ],
)
def test_keys_of_the_backup_read_and_do_not_write(
    own: tuple[str, ...], other: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert json.loads(with_keys_of(config(*own), config(*other))) == json.loads(config(*expected))


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"resources":[{"providers":[{"aescbc":{}}]}]}', b"\xff"]
)
def test_what_is_not_of_the_operators_form_is_refused(text: bytes) -> None:
    for pair in ((config("a"), text), (text, config("a"))):
        with pytest.raises(ValueError, match="secretbox"):
            with_keys_of(*pair)
