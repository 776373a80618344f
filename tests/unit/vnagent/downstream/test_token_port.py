# SPDX-License-Identifier: Apache-2.0
"""What a port for tokens remembers, counts and refuses."""

import pytest

from tenancy.registry import Registry
from tenancy.tenant import Tenant
from tests.token_issuer import AUDIENCE, ISSUER, SUBJECT, segment
from vnagent.core.access import Deny
from vnagent.core.bearer_token import TokenFault, TokenTerms, VerifiedToken
from vnagent.core.head import Fields
from vnagent.core.verification_rate import ADDRESS_BURST
from vnagent.downstream.token_port import MAX_VERIFIED, REFUSAL_TEXT, TokenPort

NOW = 1_800_000_000.0
HOST = "192.0.2.1"
REGISTRY = Registry({"ten-a.yaml": Tenant("ten-a", (), {})})


class CountingKey:
    """Takes each signature, and counts the checks."""

    algorithms = frozenset({"ES256"})

    def __init__(self) -> None:
        self.checks = 0

    def payload_of(self, token: bytes, _algorithm: str) -> bytes | None:
        self.checks += 1
        lifetime_s = int(token.rpartition(b".")[2])
        claims = f'{{"aud":"{AUDIENCE}","iss":"{ISSUER}","sub":"{SUBJECT}","exp":{NOW + lifetime_s}}}'
        return claims.encode()


class PortUnderTest:
    """A port of ten-a with one key."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.key = CountingKey()
        terms = TokenTerms("ten-a", ISSUER, AUDIENCE, frozenset({SUBJECT}))
        self.port = TokenPort(10551, terms, self.refused.append, 0.0)
        self.port.use_keys({"key-1": self.key})

    def ask(
        self,
        token: str | None,
        *,
        registry: Registry = REGISTRY,
        address: str = HOST,
        wall_s: float = NOW,
        now_s: float = 0.0,
    ) -> VerifiedToken | Deny:
        lines = () if token is None else ((b"authorization", f"Bearer {token}".encode()),)
        return self.port.authenticate(Fields(lines, dict(lines)), registry, address, wall_s, now_s)


def token(number: int = 0, lifetime_s: int = 3600, kid: str = "key-1") -> str:
    """Different tokens by their number."""
    header = segment({"alg": "ES256", "kid": kid})
    return f"{header}.{segment(number)}.{lifetime_s}"


def denied(reason: str) -> Deny:
    return Deny(401, reason, must_close=True, text=REFUSAL_TEXT)


def test_a_token_is_verified_once_until_it_expires() -> None:
    setting = PortUnderTest()
    assert isinstance(setting.ask(token()), VerifiedToken)
    assert isinstance(setting.ask(token(), address="192.0.2.2", wall_s=NOW + 3660), VerifiedToken)
    assert setting.ask(token(), wall_s=NOW + 3661) == denied("token-expired")
    assert setting.key.checks == 1


def test_new_keys_forget_verified_tokens() -> None:
    setting = PortUnderTest()
    assert isinstance(setting.ask(token()), VerifiedToken)
    setting.port.use_keys({"key-2": CountingKey()})
    assert setting.ask(token()) == denied("token-key-unknown")
    assert setting.port.key_count == 1


def test_a_changed_registry_costs_no_check() -> None:
    """Any change in the super cluster makes a new one, and a token does not depend on it."""
    setting = PortUnderTest()
    setting.ask(token())
    setting.ask(token(), registry=Registry({"other": Tenant("ten-a", (), {})}))
    assert setting.key.checks == 1


def test_tokens_that_need_no_check_take_nothing_from_the_rate() -> None:
    """Any client can send them, and vn-agent must still verify a scraper's new token."""
    setting = PortUnderTest()
    for number in range(1000):
        address = f"192.0.2.{number % 250}"
        assert setting.ask("a.b.c", address=address) == denied("token-malformed")
        assert setting.ask(token(number, kid="other"), address=address) == denied("token-key-unknown")
    assert isinstance(setting.ask(token()), VerifiedToken)


def test_tokens_of_an_unregistered_tenant_are_refused() -> None:
    setting = PortUnderTest()
    setting.ask(token())
    assert setting.ask(token(), registry=Registry()) == denied("token-tenant-unregistered")


def test_verified_tokens_are_bounded() -> None:
    """The oldest is verified again."""
    setting = PortUnderTest()
    for number in range(MAX_VERIFIED + 1):
        assert isinstance(setting.ask(token(number), now_s=number * 10.0), VerifiedToken)
    assert setting.key.checks == MAX_VERIFIED + 1
    now_s = MAX_VERIFIED * 10.0
    setting.ask(token(1), now_s=now_s)
    assert setting.key.checks == MAX_VERIFIED + 1
    setting.ask(token(0), now_s=now_s)
    assert setting.key.checks == MAX_VERIFIED + 2


@pytest.mark.parametrize("lifetime_s", [3600, -3600])
def test_new_tokens_of_an_address_have_a_rate(lifetime_s: int) -> None:
    """Valid ones too: a tenant can make as many as it likes. Those that are verified already go on."""
    setting = PortUnderTest()
    known = token(lifetime_s=7200)
    assert isinstance(setting.ask(known, address="192.0.2.2"), VerifiedToken)
    answers = [setting.ask(token(number, lifetime_s)) for number in range(1000)]
    assert setting.key.checks == 1 + ADDRESS_BURST
    assert answers.count(Deny(429, TokenFault.TOO_MANY, must_close=True)) == 1000 - ADDRESS_BURST
    assert isinstance(setting.ask(known), VerifiedToken)
    assert isinstance(setting.ask(token(0, 7200), address="192.0.2.2"), VerifiedToken)


def test_requests_without_a_token_use_no_rate() -> None:
    setting = PortUnderTest()
    for _ in range(1000):
        assert setting.ask(None) == denied("token-missing")
        assert setting.ask("a b") == denied("token-malformed")
    assert isinstance(setting.ask(token()), VerifiedToken)


def test_each_refusal_is_counted_with_its_reason() -> None:
    setting = PortUnderTest()
    setting.ask(None)
    setting.ask(token(lifetime_s=-61))
    setting.ask(token())
    assert setting.refused == ["token-missing", "token-expired"]
