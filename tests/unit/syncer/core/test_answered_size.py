# SPDX-License-Identifier: Apache-2.0
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.answered_size import MOST_TIMES, answered_bytes

# As Go's encoder writes them, before 1.22 the last two too: each is six bytes.
_ESCAPED = "<>&\u2028\u2029\b\f"


def _as_go(text: str) -> int:
    """The length of a text in JSON by Go's encoder."""
    plain = "".join(each for each in text if each not in _ESCAPED)
    return len(msgspec.json.encode(plain)) + 6 * (len(text) - len(plain))


_TEXTS = st.text(
    alphabet=st.one_of(st.sampled_from(_ESCAPED + '"\\/bf\x00\x1f\x7f'), st.characters(codec="utf-8"))
)


@given(_TEXTS)
def test_it_is_as_long_as_go_writes_it(text: str) -> None:
    found = answered_bytes(msgspec.json.encode(text))
    assert found >= _as_go(text)
    assert found <= MOST_TIMES * len(msgspec.json.encode(text))
    if "\\" not in text:
        assert found == _as_go(text)
