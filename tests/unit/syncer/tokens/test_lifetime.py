# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.tokens.lifetime import (
    TokenLifetime,
    bounded_expiration_s,
    due_tokens,
    jitter_of,
    next_renewal_s,
)

AT = 1_764_075_600.0
DAY_S = 24 * 3600


def token(granted_s: int = 3607, issued_s: float = AT, key: str = "token-0") -> TokenLifetime:
    return TokenLifetime(key, "", 3607, granted_s, issued_s)


@pytest.mark.parametrize(
    ("granted_s", "jitter", "wait_s"),
    [
        (600, 0.0, 480.0),
        (600, 1.0, 456.0),
        (3600, 0.0, 2880.0),
        (3600, 0.5, 2808.0),
        (DAY_S, 0.0, 0.8 * DAY_S),
        (30 * DAY_S, 0.0, DAY_S),
        (30 * DAY_S, 1.0, 0.95 * DAY_S),
        (1, 0.0, 60.0),
    ],
)
def test_renewal_at_80_percent_or_after_a_day(granted_s: int, jitter: float, wait_s: float) -> None:
    assert token(granted_s).renewal_s(jitter) == pytest.approx(AT + wait_s)


@pytest.mark.parametrize(
    ("asked_s", "expected"), [(0, 600), (600, 600), (3607, 3607), (1 << 40, 1 << 32), (-5, 600)]
)
def test_bounds_of_a_request(asked_s: int, expected: int) -> None:
    assert bounded_expiration_s(asked_s) == expected


def test_expiry() -> None:
    assert token(3600).expiry_s() == AT + 3600


def test_jitter_is_of_the_token() -> None:
    assert jitter_of("uid-1", "token-0") == jitter_of("uid-1", "token-0")
    assert jitter_of("uid-1", "token-0") != jitter_of("uid-1", "token-1")


@given(st.text(max_size=40), st.text(max_size=20), st.integers(600, 1 << 32))
def test_renewal_leaves_a_fifth_of_the_lifetime(uid: str, key: str, granted_s: int) -> None:
    found = token(granted_s, key=key)
    left_s = found.expiry_s() - next_renewal_s(uid, (found,), AT)
    assert left_s >= 0.2 * granted_s - 1


def test_first_token_decides() -> None:
    tokens = (token(DAY_S), token(600, key="token-1"))
    assert next_renewal_s("u", tokens, AT) == next_renewal_s("u", tokens[1:], AT)


def test_token_of_a_clock_that_is_back_is_renewed_now() -> None:
    assert next_renewal_s("u", (token(issued_s=AT + 3600),), AT) == AT


def test_tokens_that_are_renewed_together() -> None:
    short, later, long = token(600), token(660, key="token-1"), token(3600, key="token-2")
    assert due_tokens("u", (long, short, later)) == (short, later)
    assert due_tokens("u", (long,)) == (long,)
