# SPDX-License-Identifier: Apache-2.0
"""Answers the calls of ExternalJWTSigner (docs/spec/external-jwt-signer.md)."""

from vc_signer.arguments import SignerArguments
from vc_signer.core import messages
from vc_signer.core.token import encode_segment, is_segment
from vc_signer.http2.connection import INTERNAL, INVALID_ARGUMENT, UNAVAILABLE, UNIMPLEMENTED
from vc_signer.key_ring import KeyRing, NoKeysError
from vc_signer.openssl import KeyFileError


class CallError(Exception):
    """A call that fails: gRPC's code, and a text for the API server's log."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class SignerService:
    """The three calls, from request to response."""

    def __init__(self, ring: KeyRing, arguments: SignerArguments) -> None:
        self._ring = ring
        self._refresh_seconds = arguments.refresh_seconds
        self._max_token_seconds = arguments.max_token_seconds

    def answer(self, path: str, request: bytes) -> tuple[bytes, frozenset[str]]:
        """The response, and the keys that it publishes. Raises `CallError`."""
        try:
            if path in messages.SIGN:
                return self._sign(request), frozenset()
            if path in messages.FETCH_KEYS:
                return self._fetch_keys()
        except NoKeysError as error:
            raise CallError(UNAVAILABLE, f"no usable keys: {error}") from None
        if path in messages.METADATA:
            return messages.metadata_response(self._max_token_seconds), frozenset()
        raise CallError(UNIMPLEMENTED, "this signer has no such method")

    def _sign(self, request: bytes) -> bytes:
        try:
            claims = messages.claims_of(request)
        except messages.MessageError as error:
            raise CallError(INVALID_ARGUMENT, str(error)) from None
        if not is_segment(claims):
            raise CallError(INVALID_ARGUMENT, "claims are not in base64url without padding")
        try:
            header, signature = self._ring.sign(claims)
        except KeyFileError as error:
            raise CallError(INTERNAL, str(error)) from None
        return messages.sign_response(header, encode_segment(signature))

    def _fetch_keys(self) -> tuple[bytes, frozenset[str]]:
        public = self._ring.served().public
        response = messages.fetch_keys_response(
            public.items(), self._ring.loaded_at_ns, self._refresh_seconds
        )
        return response, frozenset(public)
