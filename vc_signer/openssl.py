# SPDX-License-Identifier: Apache-2.0
"""Keys and signatures by the system's libcrypto (OpenSSL 3), through ctypes.

`cryptography` does the same for 5 MB more of memory that is not shared, of 9 that the smallest control
plane has left (docs/decisions/0064-a-signer-of-seven-megabytes.md). All functions are documented (man 3ssl);
`hashlib` has this library loaded anyway.
"""

import ctypes
import functools

_SONAME = "libcrypto.so.3"
_EVP_PKEY_RSA = 6
_MIN_RSA_BITS = 2048
# A signature of P-256 in DER has 72 bytes at most.
_MAX_SIGNATURE_BYTES = 80


class KeyFileError(Exception):
    """A file that has no usable key; the text has the reason."""


@functools.cache
def _library() -> ctypes.CDLL:
    """libcrypto, with the types of what is called. Raises `OSError` where it is missing."""
    library = ctypes.CDLL(_SONAME)
    pointer, number, text, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
    for name, result, arguments in (
        ("BIO_new_mem_buf", pointer, (text, number)),
        ("BIO_free", number, (pointer,)),
        ("PEM_read_bio_PrivateKey", pointer, (pointer, pointer, pointer, text)),
        ("PEM_read_bio_PUBKEY", pointer, (pointer, pointer, pointer, text)),
        ("EVP_PKEY_free", None, (pointer,)),
        ("EVP_PKEY_get_base_id", number, (pointer,)),
        ("EVP_PKEY_get_bits", number, (pointer,)),
        ("i2d_PUBKEY", number, (pointer, ctypes.POINTER(pointer))),
        ("EVP_MD_CTX_new", pointer, ()),
        ("EVP_MD_CTX_free", None, (pointer,)),
        ("EVP_sha256", pointer, ()),
        ("EVP_DigestSignInit", number, (pointer, pointer, pointer, pointer, pointer)),
        ("EVP_DigestSign", number, (pointer, text, ctypes.POINTER(size), text, size)),
        ("EVP_DigestVerifyInit", number, (pointer, pointer, pointer, pointer, pointer)),
        ("EVP_DigestVerify", number, (pointer, text, size, text, size)),
        ("ERR_clear_error", None, ()),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


class _OpenSslKey:
    """A key of OpenSSL, which is freed with this object."""

    __slots__ = ("_pointer",)

    def __init__(self, reader: str, pem: bytes) -> None:
        library = _library()
        source = library.BIO_new_mem_buf(pem, len(pem))
        # An empty password: without one OpenSSL would ask a terminal for it.
        self._pointer = getattr(library, reader)(source, None, None, b"")
        library.BIO_free(source)
        if not self._pointer:
            library.ERR_clear_error()
            raise KeyFileError("no key in PEM, or it is encrypted or damaged")

    def __del__(self) -> None:
        if self._pointer:
            _library().EVP_PKEY_free(self._pointer)

    def public_der(self) -> bytes:
        """SubjectPublicKeyInfo."""
        library = _library()
        length = library.i2d_PUBKEY(self._pointer, None)
        if length <= 0:
            library.ERR_clear_error()
            raise KeyFileError("the key has no public half")
        out = ctypes.create_string_buffer(length)
        library.i2d_PUBKEY(self._pointer, ctypes.byref(ctypes.c_void_p(ctypes.addressof(out))))
        return out.raw

    def verify(self, signature: bytes, data: bytes) -> bool:
        """Whether this key signed `data`, by a signature in DER over its SHA-256."""
        library = _library()
        context = library.EVP_MD_CTX_new()
        try:
            is_ready = library.EVP_DigestVerifyInit(context, None, library.EVP_sha256(), None, self._pointer)
            found = is_ready == 1 and library.EVP_DigestVerify(
                context, signature, len(signature), data, len(data)
            )
            library.ERR_clear_error()
            return bool(found == 1)
        finally:
            library.EVP_MD_CTX_free(context)


class VerifyingKey(_OpenSslKey):
    """A public key of a `.pub` file."""

    __slots__ = ()

    def __init__(self, pem: bytes) -> None:
        """Raises `KeyFileError`."""
        super().__init__("PEM_read_bio_PUBKEY", pem)
        library = _library()
        is_rsa = library.EVP_PKEY_get_base_id(self._pointer) == _EVP_PKEY_RSA
        if is_rsa and library.EVP_PKEY_get_bits(self._pointer) < _MIN_RSA_BITS:
            raise KeyFileError(f"an RSA key has {_MIN_RSA_BITS} bits at least")


class SigningKey(_OpenSslKey):
    """The private key of `signing.pem`."""

    __slots__ = ()

    def __init__(self, pem: bytes) -> None:
        """Raises `KeyFileError`."""
        super().__init__("PEM_read_bio_PrivateKey", pem)

    def sign(self, data: bytes) -> bytes:
        """ECDSA over the SHA-256 of `data`, in DER."""
        library = _library()
        context = library.EVP_MD_CTX_new()
        try:
            out = ctypes.create_string_buffer(_MAX_SIGNATURE_BYTES)
            length = ctypes.c_size_t(_MAX_SIGNATURE_BYTES)
            is_ready = library.EVP_DigestSignInit(context, None, library.EVP_sha256(), None, self._pointer)
            if (
                is_ready != 1
                or library.EVP_DigestSign(context, out, ctypes.byref(length), data, len(data)) != 1
            ):
                library.ERR_clear_error()
                raise KeyFileError("OpenSSL cannot sign with the key")
            return out.raw[: length.value]
        finally:
            library.EVP_MD_CTX_free(context)
