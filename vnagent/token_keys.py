# SPDX-License-Identifier: Apache-2.0
"""The keys of a tenant's tokens, from the file of its JSON Web Key Set.

Only a node with `tokenListeners` imports this module: PyJWT and cryptography take 12 MB
(docs/decisions/0041).
"""

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from jwt import PyJWK, PyJWS
from jwt.exceptions import PyJWTError

from daemonkit.files.watched import FilesError, Watched
from vnagent.core import jwks
from vnagent.core.jwks import JwksError

_jws = PyJWS(algorithms=sorted(jwks.ALGORITHMS))


class TokenKey:
    """A `vnagent.core.bearer_token.SignatureKey`."""

    def __init__(self, public: jwks.PublicKey) -> None:
        """Raises JwksError."""
        self.algorithms = public.algorithms
        try:
            # One of its algorithms, as PyJWT makes the same key for each.
            self._key = PyJWK(dict(public.members), min(public.algorithms)).key
        except (PyJWTError, UnsupportedAlgorithm, ValueError):
            raise JwksError(f"key {public.key_id!r} cannot be used") from None

    def payload_of(self, token: bytes, algorithm: str) -> bytes | None:
        """The signed payload; None if the signature is not this key's."""
        try:
            payload: bytes = _jws.decode_complete(token, self._key, algorithms=[algorithm])["payload"]
        except PyJWTError:
            return None
        return payload


def load(path: Path) -> dict[str, TokenKey]:
    """The keys of the file by their `kid`. Raises JwksError, whose text does not name the file."""
    watched = Watched.files((path,), max_file_bytes=jwks.MAX_BYTES)
    try:
        data = watched.snapshot().get(path)
    except FilesError as error:
        raise JwksError(str(error)) from None
    if data is None:
        raise JwksError(watched.problems.get(path, "does not exist"))
    return {each.key_id: TokenKey(each) for each in jwks.parse(data)}
