# SPDX-License-Identifier: Apache-2.0
"""Header blocks of a client (RFC 7541): its dynamic table, and its Huffman code.

A client may use a table of 4096 bytes before it has read our settings, and Go's and C++'s gRPC use it.
"""

from daemonkit.http2 import Http2Error, integer

# Appendix A, where `/` stands between a name and a value that has one.
_STATIC = (
    ":authority :method/GET :method/POST :path// :path//index.html :scheme/http :scheme/https :status/200"
    " :status/204 :status/206 :status/304 :status/400 :status/404 :status/500 accept-charset"
    " accept-encoding/gzip,_deflate accept-language accept-ranges accept access-control-allow-origin age"
    " allow authorization cache-control content-disposition content-encoding content-language"
    " content-length content-location content-range content-type cookie date etag expect expires from host"
    " if-match if-modified-since if-none-match if-range if-unmodified-since last-modified link location"
    " max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after server"
    " set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate"
)
# Appendix B: the lengths of the codes of 0 to 256, `0` for none, `a` for 10. The code is canonical: codes of
# one length rise with their symbols, so the lengths say it all.
_CODE_BITS = (
    "dnsssssssoussussssssssusssssssss6aacd68baa8b8666555666666678f6cad67777777777777777777777878djde6"
    "f56565666577666567655677777fbedskmkkmmmnmnnnnnonoomnonnnnlmnmnnomlkmmnnlnmmolmnnllmlnmnnkmmmnmmn"
    "qqkjmnmpqqqrrqopjlqrrqrollqqsrrrkoklmllnmmppooqnqrqqrrrrrsrrrrrqu"
)
_END_OF_STRING = 256
_MAX_CODE_BITS = 30

TABLE_BYTES = 4096
"""HTTP/2's default for the dynamic table, which we never change."""
_ENTRY_OVERHEAD_BYTES = 32
# Of one block, decoded: a call of gRPC has ten fields.
_MAX_FIELDS = 100
_MAX_BYTES = 16 << 10

_HeaderField = tuple[str, str]


def _static_table() -> tuple[_HeaderField, ...]:
    pairs = (each.partition("/") for each in _STATIC.split())
    return tuple((name, value.replace("_", " ")) for name, _, value in pairs)


def _huffman_codes() -> dict[int, int]:
    """Symbols by their codes, each with a 1 in front: so codes that differ in length differ."""
    found, code, last = {}, 0, 0
    for length, symbol in sorted((int(each, 36), symbol) for symbol, each in enumerate(_CODE_BITS)):
        code <<= length - last
        last = length
        found[1 << length | code] = symbol
        code += 1
    return found


_TABLE = _static_table()
_CODES = _huffman_codes()


class HeaderDecoder:
    """Reads the header blocks of one connection, in their order."""

    __slots__ = ("_bytes", "_max_bytes", "_table")

    def __init__(self) -> None:
        self._table: list[_HeaderField] = []
        """The newest first."""
        self._bytes = 0
        self._max_bytes = TABLE_BYTES

    def decode(self, block: bytes) -> dict[str, str]:
        """The fields of a block; of one that repeats, the last value. Raises `Http2Error`."""
        fields: dict[str, str] = {}
        position = count = size = 0
        while position < len(block):
            first = block[position]
            if first & 0xE0 == 0x20:
                if count:
                    raise Http2Error("a table changes its size within headers")
                limit, position = integer(block, position, 5)
                self._resize(limit)
                continue
            if first & 0x80:
                index, position = integer(block, position, 7)
                name, value = self._field(index)
            else:
                is_kept = bool(first & 0x40)
                index, position = integer(block, position, 6 if is_kept else 4)
                name, position = (self._field(index)[0], position) if index else _text(block, position)
                value, position = _text(block, position)
                if is_kept:
                    self._keep(name, value)
            count += 1
            size += len(name) + len(value)
            if count > _MAX_FIELDS or size > _MAX_BYTES:
                raise Http2Error("headers are too long")
            fields[name] = value
        return fields

    def _field(self, index: int) -> _HeaderField:
        if 0 < index <= len(_TABLE):
            return _TABLE[index - 1]
        if 0 <= index - len(_TABLE) - 1 < len(self._table):
            return self._table[index - len(_TABLE) - 1]
        raise Http2Error("a header refers to a table entry that does not exist")

    def _keep(self, name: str, value: str) -> None:
        self._table.insert(0, (name, value))
        self._bytes += _entry_bytes(name, value)
        self._evict()

    def _resize(self, limit: int) -> None:
        if limit > TABLE_BYTES:
            raise Http2Error("a table larger than we allow")
        self._max_bytes = limit
        self._evict()

    def _evict(self) -> None:
        while self._bytes > self._max_bytes:
            self._bytes -= _entry_bytes(*self._table.pop())


def _entry_bytes(name: str, value: str) -> int:
    # Texts are decoded as Latin-1: a character is a byte.
    return len(name) + len(value) + _ENTRY_OVERHEAD_BYTES


def _text(block: bytes, position: int) -> tuple[str, int]:
    """A string and its end (RFC 7541, 5.2)."""
    is_coded = position < len(block) and bool(block[position] & 0x80)
    length, start = integer(block, position, 7)
    end = start + length
    if end > len(block):
        raise Http2Error("headers are cut short")
    data = block[start:end]
    return (_decoded(data) if is_coded else data).decode("latin-1"), end


def _decoded(data: bytes) -> bytes:
    """Huffman's code (RFC 7541, 5.2): the rest is padding, the first bits of the end of a string."""
    found = bytearray()
    code = 1
    for byte in data:
        for shift in range(7, -1, -1):
            code = code << 1 | (byte >> shift & 1)
            symbol = _CODES.get(code)
            if symbol is not None:
                if symbol == _END_OF_STRING:
                    raise Http2Error("a string has its own end")
                found.append(symbol)
                code = 1
            elif code >> _MAX_CODE_BITS:
                raise Http2Error("a string is not in Huffman's code")
    padding_bits = code.bit_length() - 1
    if padding_bits > 7 or code != (1 << padding_bits + 1) - 1:
        raise Http2Error("a string ends within a character")
    return bytes(found)
