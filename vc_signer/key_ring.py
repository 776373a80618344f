# SPDX-License-Identifier: Apache-2.0
"""The keys in use: the set that is served, and the private key that signs."""

import hashlib
from collections.abc import Callable, Mapping

from daemonkit import logs
from vc_signer import key_files
from vc_signer.core.key_set import SIGNING_FILE, KeySet, KeySetError, key_set, next_signing
from vc_signer.core.token import der_signature, header_segment, raw_signature, signing_input
from vc_signer.openssl import KeyFileError, SigningKey, VerifyingKey

_log = logs.get(__name__)

# {}: no token, and nobody accepts it as one.
_THROW_AWAY = b"e30"


class NoKeysError(Exception):
    """No set of keys was usable yet; the text has the reason."""


class KeyRing:
    """The keys of one directory. Not thread-safe."""

    def __init__(self, directory: str, now_ns: Callable[[], int]) -> None:
        """`now_ns` gives the time since 1970."""
        self.problem = "not read yet"
        """Why the newest files are not served; empty if they are."""
        self.loaded_at_ns = 0
        self._directory = directory
        self._now_ns = now_ns
        self._fingerprint = b""
        self._served: KeySet | None = None
        self._published: frozenset[str] = frozenset()
        self._signing = ""
        self._private: dict[str, SigningKey] = {}
        """The key that signs, and the one that will once it is published."""

    def reload(self) -> None:
        """Read the files, and serve them if they changed and are a usable set."""
        fingerprint = b""
        try:
            files = key_files.read(self._directory)
            fingerprint = _fingerprint(files)
            if fingerprint == self._fingerprint:
                return
            signing, served = _load(files)
        except KeySetError as error:
            self._refuse(str(error))
            return
        finally:
            self._fingerprint = fingerprint
        self.problem = ""
        self._private[served.signing] = signing
        before, self._served = self._served, served
        self.loaded_at_ns = self._now_ns()
        _log.info("keys loaded", signing=served.signing, keys=len(served.public))
        if before is not None and served.signing not in before.public:
            _log.warning(
                "the key that signs was not served before: other API servers of this control plane may refuse"
                " its tokens until their signers have it. Add a public key first, and sign with it later",
                signing=served.signing,
            )
        self._choose(served)

    def _refuse(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            _log.error(
                "keys refused" if self._served is None else "new keys refused, the former ones stay",
                reason=problem,
            )

    def served(self) -> KeySet:
        """The set to publish. Raises `NoKeysError`."""
        if self._served is None:
            raise NoKeysError(self.problem)
        return self._served

    def mark_published(self, kids: frozenset[str]) -> None:
        """The API server has been sent these keys."""
        self._published = kids
        if self._served is not None:
            self._choose(self._served)

    def _choose(self, served: KeySet) -> None:
        chosen = next_signing(self._signing, served, self._published)
        if chosen != self._signing:
            self._signing = chosen
            _log.info("signing with another key", signing=chosen)
        self._private = {kid: key for kid, key in self._private.items() if kid in (chosen, served.signing)}

    def sign(self, claims: bytes) -> tuple[bytes, bytes]:
        """The header's segment, and R and S. Raises `NoKeysError`, `KeyFileError`."""
        self.served()
        header = header_segment(self._signing)
        return header, raw_signature(self._private[self._signing].sign(signing_input(header, claims)))

    def fault(self) -> str:
        """Why no token can be signed now; empty if one was."""
        try:
            header, signature = self.sign(_THROW_AWAY)
        except (NoKeysError, KeyFileError) as error:
            return str(error)
        key = self._private[self._signing]
        is_valid = key.verify(der_signature(signature), signing_input(header, _THROW_AWAY))
        return "" if is_valid else "the signature of a token is not valid"


def _fingerprint(files: Mapping[str, bytes]) -> bytes:
    """Differs where the files do."""
    found = hashlib.sha256()
    for name, data in files.items():
        found.update(b"%d:%s%d:%s" % (len(name), name.encode(errors="surrogateescape"), len(data), data))
    return found.digest()


def _load(files: Mapping[str, bytes]) -> tuple[SigningKey, KeySet]:
    """Raises `KeySetError`."""
    if SIGNING_FILE not in files:
        raise KeySetError(f"{SIGNING_FILE}: missing: mount the Secret that has it")
    name = SIGNING_FILE
    try:
        signing = SigningKey(files[name])
        own = signing.public_der()
        named = {}
        for name, pem in files.items():
            if name != SIGNING_FILE:
                named[name] = VerifyingKey(pem).public_der()
    except KeyFileError as error:
        raise KeySetError(f"{name}: {error}") from None
    return signing, key_set(own, named)
