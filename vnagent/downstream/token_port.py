# SPDX-License-Identifier: Apache-2.0
"""A port on which the clients of one tenant show a bearer token, and no certificate.

The port alone names the tenant, and only that tenant's keys are tried. `vnagent.core.bearer_token` decides.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping

from tenancy.registry import Registry
from vnagent.core.access import Deny
from vnagent.core.bearer_token import (
    SignatureKey,
    TokenFault,
    TokenTerms,
    VerifiedToken,
    decide,
    token_of,
)
from vnagent.core.head import Fields
from vnagent.core.verification_rate import VerificationRate

# A scraper sends the same token for minutes, on each request.
MAX_VERIFIED = 64
# Of a request on such a port: a token of 8 KiB, and what scrapers send else. Any client that connects may
# send one, before it is known.
MAX_HEAD_BYTES = 16 * 1024
# The same for each fault: a client that guesses learns nothing from it.
REFUSAL_TEXT = (
    "a valid bearer token is required; ask the operator of this node for its issuer, audience and subjects"
)


class TokenPort:
    """`count_refusal` takes the reason of each refusal."""

    def __init__(
        self, number: int, terms: TokenTerms, count_refusal: Callable[[str], None], now_s: float
    ) -> None:
        """`number` is the port's own, `now_s` monotonic. Before `use_keys` no token is verified."""
        self.number = number
        self.tenant = terms.tenant
        self._terms = terms
        self._count_refusal = count_refusal
        self._rate = VerificationRate(now_s)
        self._keys: Mapping[str, SignatureKey] = {}
        # By the SHA-256 of the token: no token stays in memory.
        self._verified: OrderedDict[bytes, VerifiedToken] = OrderedDict()

    def use_keys(self, keys: Mapping[str, SignatureKey]) -> None:
        """Verify by these keys from now on, also tokens that others have verified."""
        self._keys = keys
        self._verified.clear()

    @property
    def key_count(self) -> int:
        return len(self._keys)

    def authenticate(
        self, fields: Fields, registry: Registry, client_address: str, wall_s: float, now_s: float
    ) -> VerifiedToken | Deny:
        """The verified token of one request, or the refusal. `wall_s` is since 1970, `now_s` monotonic."""
        found = self._find(fields, registry, client_address, wall_s, now_s)
        if isinstance(found, VerifiedToken):
            return found
        self._count_refusal(found)
        if found is TokenFault.TOO_MANY:
            return Deny(429, found, must_close=True)
        # It closes: the next guess costs a handshake, which is bounded for each client address.
        return Deny(401, found, must_close=True, text=REFUSAL_TEXT)

    def _find(
        self, fields: Fields, registry: Registry, client_address: str, wall_s: float, now_s: float
    ) -> VerifiedToken | TokenFault:
        if self.tenant not in registry.tenants:
            return TokenFault.TENANT
        token = token_of(fields)
        if isinstance(token, TokenFault):
            return token
        digest = hashlib.sha256(token).digest()
        cached = self._verified.get(digest)
        if cached is not None:
            self._verified.move_to_end(digest)
            return TokenFault.EXPIRED if cached.is_expired(wall_s) else cached

        def may_verify() -> bool:
            return self._rate.try_acquire(client_address, now_s)

        found = decide(token, self._keys, self._terms, wall_s, may_verify)
        if isinstance(found, VerifiedToken):
            self._rate.prove(client_address)
            self._verified[digest] = found
            if len(self._verified) > MAX_VERIFIED:
                self._verified.popitem(last=False)
        return found
