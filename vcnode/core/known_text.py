# SPDX-License-Identifier: Apache-2.0
"""Keeps of a text what is known to be harmless, and removes the rest: what a bug report is made of. Pure.

A list of what secrets look like is never whole: a password may be a number, a path or a plain word, and its
key may stand inside of JSON inside of a log line. So the reverse is listed here: the forms of words, numbers,
addresses and identifiers that daemons write. What follows a key that names a secret is removed whatever it
looks like. A document is decided key by key, and text word by word.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REMOVED = "[removed]"
MAX_DEPTH = 32

# Parts of keys and of words in text before `:` or `=`, between which words are divided.
_SECRET_WORDS = frozenset(
    {
        *("password", "passwd", "passphrase", "pass", "pw", "pwd", "secret", "token", "bearer", "basic"),
        *("authorization", "auth", "cookie", "credential", "credentials", "apikey", "jwt", "psk", "otp"),
    }
)
# The last part of a key that names where a secret is, or how many there are, and is none itself.
_ABOUT_SECRETS = frozenset(
    {
        *("file", "files", "path", "directory", "socket", "listeners", "port", "ports", "seconds", "count"),
        *("total", "name", "namespace", "bytes", "expired", "issuer", "state", "kind", "tokens", "secrets"),
    }
)
# Keys whose values are hexadecimal or random by nature, and no secrets.
_HEX_KEYS = frozenset(
    {
        *("uid", "id", "sandbox", "sandboxId", "container", "containerId", "digest", "generation", "epoch"),
        *("resourceVersion", "fingerprint", "spki", "serial", "invocationId", "worker", "replica"),
    }
)
# regex-input: 253 characters: keys are cut to `_MAX_WORD`.
_PART_OF_KEY = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_.$-]{0,63}")
_TOKEN = re.compile(r"[A-Za-z0-9_./:@%+=~-]+")
_BEFORE_KEY = re.compile(r"[:/@%+=~]")
_BETWEEN = re.compile(r"[-./:@%+=~_]")
# Words of prose and of code: no capital within but where a new word of two letters or more begins.
_PLAIN = re.compile(r"[A-Z]{0,10}[a-z]{0,24}|[a-z]{1,16}(?:[A-Z][a-z]{1,15}){1,5}|(?:[A-Z][a-z]{1,15}){2,6}")
_NUMBER = re.compile(r"[0-9]{1,10}[A-Za-z]{0,3}")
# `v1alpha1`, `web7`, `p99`, the random end of a pod's name.
_SHORT = re.compile(r"[a-z0-9]{1,10}")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_HEX = re.compile(r"(?:sha256:)?[0-9a-f]{1,64}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9:]{4,5})?")
_IPV6 = re.compile(r"[0-9a-f:]{2,39}(?:%[a-z0-9]{1,15})?(?:/[0-9]{1,3})?")
_FOLLOWED_BY_A_VALUE = re.compile(r"[\"'\\\s]{0,8}[:=]")
_BEFORE_TOKENS = frozenset({"bearer", "basic", "negotiate", "digest"})
_MAX_WORD = 253


@dataclass(slots=True)
class Removals:
    """How many values and words were removed."""

    count: int = 0

    def one(self) -> str:
        """What stands in the place of one more."""
        self.count += 1
        return REMOVED


def is_secret_key(key: str) -> bool:
    """Whether the value of a key of this name may be a secret: `clientSecret`, `AWS_SECRET_ACCESS_KEY`."""
    parts = [each.lower() for each in _PART_OF_KEY.findall(key[:_MAX_WORD])]
    if not parts or parts[-1] in _ABOUT_SECRETS:
        return False
    return not _SECRET_WORDS.isdisjoint(parts) or {"api", "key"} <= set(parts) or _is_private_key(parts)


def _is_private_key(parts: list[str]) -> bool:
    """A private or an access key, and what a kubeconfig has inline: `client-key-data`."""
    kinds = {"private", "access", "signing", "encryption"} if parts[-1] == "key" else {"key", "certificate"}
    return parts[-1] in ("key", "data") and not (kinds | {"authority"}).isdisjoint(parts)


def known_document(removals: Removals, value: Any, key: str = "", depth: int = 0) -> Any:
    """A document of JSON or YAML with the values that are known to be harmless.

    Keys that are no names are removed, with their values; so is what is nested deeper than `MAX_DEPTH`.
    """
    if is_secret_key(key) and value not in (None, "", [], {}):
        return removals.one()
    if isinstance(value, Mapping):
        if depth >= MAX_DEPTH:
            return removals.one()
        return {
            name if _is_name(name) else removals.one(): known_document(removals, each, str(name), depth + 1)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        if depth >= MAX_DEPTH:
            return removals.one()
        return [known_document(removals, each, key, depth + 1) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    if not isinstance(value, str):
        return known_text(removals, str(value))
    if key in _HEX_KEYS and _HEX.fullmatch(value):
        return value
    return known_text(removals, value)


def _is_name(key: object) -> bool:
    return isinstance(key, str) and (bool(_KEY.fullmatch(key)) or _is_known(key))


def known_text(removals: Removals, text: str) -> str:
    """Running text: each word that has a known form, and of each line what stands before a secret's key."""
    return "\n".join(_known_line(removals, line) for line in text.split("\n"))


def _known_line(removals: Removals, line: str) -> str:
    kept: list[str] = []
    at = 0
    for found in _TOKEN.finditer(line):
        kept.append(_printable(line[at : found.start()]))
        at = found.end()
        word = found[0]
        cut = _start_of_secret(word, line, at)
        if cut is not None:
            kept += [word[:cut], removals.one()]
            return "".join(kept)
        # Punctuation of the sentence belongs to no word.
        bare = word.rstrip(".:=")
        kept += [bare if _is_known(bare) else removals.one(), word[len(bare) :]]
    kept.append(_printable(line[at:]))
    return "".join(kept)


def _start_of_secret(word: str, line: str, after: int) -> int | None:
    """Where a secret begins in a word or behind it: after `token:`, `password=`, `Bearer`; else None."""
    start = 0
    for sign in _BEFORE_KEY.finditer(word):
        if sign[0] in ":=" and is_secret_key(word[start : sign.start()]):
            return sign.end()
        start = sign.end()
    if is_secret_key(word.rstrip(":=")) and (
        word[-1] in ":=" or _FOLLOWED_BY_A_VALUE.match(line, after) is not None
    ):
        return len(word)
    return len(word) if word.lower() in _BEFORE_TOKENS and line[after : after + 1] == " " else None


def _printable(text: str) -> str:
    return "".join(each if " " <= each <= "~" or each == "\t" else "?" for each in text)


def _is_known(word: str) -> bool:
    """Whether a word between spaces, quotes and brackets has the form of something harmless."""
    if len(word) > _MAX_WORD:
        return False
    if _TIME.fullmatch(word) or _UID.fullmatch(word) or (word.count(":") > 1 and _IPV6.fullmatch(word)):
        return True
    scheme, separator, rest = word.partition("://")
    if separator:
        return _is_plain(scheme) and "@" not in rest and all(map(_is_piece, _BETWEEN.split(rest)))
    return all(map(_is_piece, _BETWEEN.split(word)))


def _is_piece(piece: str) -> bool:
    return not piece or _is_plain(piece) or bool(_NUMBER.fullmatch(piece) or _SHORT.fullmatch(piece))


def _is_plain(piece: str) -> bool:
    return _PLAIN.fullmatch(piece) is not None


def known_log(removals: Removals, text: str) -> str:
    """Lines of the journal: ours are JSON behind a prefix, and others stay if they have a known form."""
    return "\n".join(_known_log_line(removals, line) for line in text.split("\n"))


def _known_log_line(removals: Removals, line: str) -> str:
    prefix, brace, rest = line.partition("{")
    if brace and rest.endswith("}"):
        try:
            fields = json.loads(brace + rest)
        except (ValueError, RecursionError):
            return f"{_known_line(removals, prefix)}{removals.one()}"
        return f"{_known_line(removals, prefix)}{json.dumps(known_document(removals, fields))}"
    if _IS_OF_SYSTEMD.search(line[:_MAX_WORD]) or line == "":
        return _known_line(removals, line)
    # A library's or the interpreter's: nothing says what it is about.
    return f"[a line of {len(line)} characters removed]"


_IS_OF_SYSTEMD = re.compile(r" systemd\[[0-9]{1,10}\]: ")
