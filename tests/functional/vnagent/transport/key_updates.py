# SPDX-License-Identifier: Apache-2.0
"""A TLS 1.3 client's key updates, record by record: ssl has no call for them (RFC 8446, 4.6.3, 5.2, 7)."""

from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

# The message: type key_update, one byte, update_requested; and that it is of a handshake.
_KEY_UPDATE = b"\x18\x00\x00\x01\x01" + b"\x16"
# On the wire: header, message and tag.
UPDATE_BYTES = 5 + len(_KEY_UPDATE) + 16
_HASH = hashes.SHA384()


class KeyUpdates:
    """The next records of a client with its traffic secret in `keylog`.

    For a connection with TLS_AES_256_GCM_SHA384, before its first application data.
    """

    def __init__(self, keylog: Path) -> None:
        lines = [line.split() for line in keylog.read_text().splitlines()]
        (secret,) = [words[2] for words in lines if words[0] == "CLIENT_TRAFFIC_SECRET_0"]
        self._secret = bytes.fromhex(secret)

    def next(self) -> bytes:
        """A key update that asks for one; the next is under the keys that it announces."""
        key, nonce = self._derived(b"key", 32), self._derived(b"iv", 12)
        head = b"\x17\x03\x03" + (len(_KEY_UPDATE) + 16).to_bytes(2, "big")
        record = head + AESGCM(key).encrypt(nonce, _KEY_UPDATE, head)
        self._secret = self._derived(b"traffic upd", _HASH.digest_size)
        return record

    def _derived(self, label: bytes, size: int) -> bytes:
        name = b"tls13 " + label
        info = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\x00"
        return HKDFExpand(_HASH, size, info).derive(self._secret)
