# SPDX-License-Identifier: Apache-2.0
"""Removes secrets and the names of tenants from texts that leave a node.

Names are those that the daemons' own documents have: a tenant's key, namespaces, pods, networks. Each gets
one pseudonym for the whole report, in all texts, and so does what contains a tenant's key, or reads
`namespace/name`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

REMOVED = "[removed]"
# Keys of /status and of logs, with what their values are. Values like NAMESPACE/NAME count too.
_KINDS = {
    "tenant": "tenant",
    "tenantPod": "pod",
    "tenantNamespace": "namespace",
    "tenantName": "pod",
    "pod": "pod",
    "namespace": "namespace",
    "superNamespace": "namespace",
    "network": "network",
    "networks": "network",
    "service": "service",
    "claimedBy": "tenant",
    "cluster": "tenant",
    "key": "tenant",
}
# Lists and mappings of tenants by their keys.
_TENANTS = frozenset({"tenants", "retained", "clientLists"})
# Words of Kubernetes and of vcnode, which are no names of tenants or of their objects.
_COMMON = frozenset(
    {
        *(
            "default",
            "kube-system",
            "kube-public",
            "kube-node-lease",
            "host",
            "none",
            "true",
            "false",
            "null",
            "-",
        ),
        *("system:anonymous", "vn-agent", "kata-bridge", "kubeproxy-ext", "dnsconfig", "vc-syncer"),
        *("dnsconfig-webhook", "containerd", "kubelet", "superCluster", "apiserver", "prometheus"),
    }
)
_PEM_BEGIN = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_PEM_END = "-----END "
# RFC 7519: header and payload begin with `{"`.
_JWT = re.compile(r"\beyJ[A-Za-z0-9_.-]+")
_SECRET_KEY = re.compile(
    r"(?i)((?:password|passwd|secret|token|authorization|client-key-data|client-certificate-data"
    r"|certificate-authority-data|api[_-]?key)[\"']?[ \t]{0,4}[:=][ \t]{0,4})"
    r"(\"[^\"\n]*\"|'[^'\n]*'|[^\s,}]+(?: [^\s,}]+)?)"
)
_URL_USER = re.compile(r"(://)[^/\s:@]{1,256}:[^/\s@]{1,256}@")
# Files and flags whose names say "token" or "secret" have no secret in them.
_NO_SECRET = re.compile(r"[\"']?(?:/|\d+[\"']?$|true|false|null|\{|\[)")
_LABEL = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
# NAMESPACE/NAME in running text, not a part of a path, a URL, a media type or a fraction.
_PAIR = re.compile(rf"(?<![\w./:%@-])({_LABEL})/({_LABEL})(?![\w/%])")
_WORD = re.compile(r"[A-Za-z0-9_.-]+")
_PATHS = frozenset(
    {"etc", "var", "run", "usr", "proc", "sys", "tmp", "application", "text", "api", "apis", "n"}
)
MAX_NAMES = 50_000


class TooManyNamesError(Exception):
    """There are more names than a report replaces."""


@dataclass(slots=True)
class Redaction:
    """Pseudonyms by name, in lower case, and how many secrets were removed."""

    pseudonyms: dict[str, str] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    secrets: int = 0
    _counts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, kind: str) -> str:
        """The name's pseudonym, which is new if the name is. Raises TooManyNamesError."""
        known = name.lower()
        if known in self.pseudonyms:
            return self.pseudonyms[known]
        if len(self.pseudonyms) >= MAX_NAMES:
            raise TooManyNamesError(f"more than {MAX_NAMES} names")
        number = self._counts[kind] = self._counts.get(kind, 0) + 1
        self.pseudonyms[known] = f"{kind}-{number}"
        if kind == "tenant":
            self.keys.add(known)
        return self.pseudonyms[known]


def collect(redaction: Redaction, document: Any, key: str = "") -> None:
    """Add all names of a JSON document. Raises TooManyNamesError."""
    if isinstance(document, Mapping):
        for inner, value in document.items():
            if key in _TENANTS and isinstance(inner, str):
                _collect_name(redaction, inner, "tenant")
            collect(redaction, value, inner if isinstance(inner, str) else "")
    elif isinstance(document, list | tuple):
        for value in document:
            collect(redaction, value, key)
    elif isinstance(document, str) and (key in _KINDS or key in _TENANTS):
        _collect_name(redaction, document, "tenant" if key in _TENANTS else _KINDS[key])


def _collect_name(redaction: Redaction, text: str, kind: str) -> None:
    parts = text.split("/")
    kinds = ["namespace", *[kind] * (len(parts) - 1)] if len(parts) > 1 else [kind]
    for part, kind_of_part in zip(parts, kinds, strict=True):
        if part and part not in _COMMON and " " not in part:
            redaction.add(part, kind_of_part)


def last_lines(text: str, most: int) -> str:
    """The last whole lines of at most `most` characters together: half a line cannot be read as JSON."""
    if len(text) <= most:
        return text
    return text[len(text) - most - 1 :].partition("\n")[2]


def remove_secrets(redaction: Redaction, text: str) -> str:
    """The text without keys, certificates, tokens and passwords."""

    def remove_value(found: re.Match[str]) -> str:
        if _NO_SECRET.match(found[2]) or REMOVED in found[2]:
            return found[0]
        redaction.secrets += 1
        quote = found[2][0] if found[2][0] in "\"'" else ""
        return f"{found[1]}{quote}{REMOVED}{quote}"

    def remove_token(_: re.Match[str]) -> str:
        redaction.secrets += 1
        return REMOVED

    text = _JWT.sub(remove_token, _without_pem(redaction, text))
    text = _SECRET_KEY.sub(remove_value, text)
    return _URL_USER.sub(rf"\1{REMOVED}@", text)


def _without_pem(redaction: Redaction, text: str) -> str:
    """RFC 7468 blocks, also in JSON strings; one without an end goes on to the text's end."""
    kept = []
    at = 0
    while (begin := _PEM_BEGIN.search(text, at)) is not None:
        redaction.secrets += 1
        kept += [text[at : begin.start()], f"[{begin[1]} removed]"]
        end = text.find(_PEM_END, begin.end())
        close = text.find("-----", end + len(_PEM_END)) if end >= 0 else -1
        at = close + len("-----") if close >= 0 else len(text)
    return "".join([*kept, text[at:]])


def replace_names(redaction: Redaction, texts: Mapping[str, str]) -> dict[str, str]:
    """All texts with pseudonyms for the names that are known, contain a tenant's key, or stand as pairs.

    Raises TooManyNamesError.
    """
    for text in texts.values():
        for namespace, name in _PAIR.findall(text):
            if namespace not in _PATHS and not namespace.replace(".", "").isdigit():
                for part, kind in ((namespace, "namespace"), (name, "object")):
                    if part not in _COMMON:
                        redaction.add(part, kind)
    keys = _long_keys(redaction)
    replaced: dict[str, str] = {}

    def replace(found: re.Match[str]) -> str:
        word = found[0]
        if word not in replaced:
            replaced[word] = _pseudonymous(redaction, keys, word)
        return replaced[word]

    return {name: _WORD.sub(replace, text) for name, text in texts.items()}


def names_left(redaction: Redaction, texts: Iterable[str]) -> bool:
    """Whether a tenant's key is still in a text: the report must not be written then."""
    keys = _long_keys(redaction)
    return any(key in text for text in map(str.lower, texts) for key in keys)


def _pseudonymous(redaction: Redaction, keys: Iterable[str], word: str) -> str:
    bare = word.rstrip(".").lower()
    if bare in redaction.pseudonyms:
        return redaction.pseudonyms[bare] + word[len(bare) :]
    if any(key in bare for key in keys):
        return redaction.add(bare, "name") + word[len(bare) :]
    # A host: each label may be a name.
    return ".".join(redaction.pseudonyms.get(part.lower(), part) for part in word.split("."))


def _long_keys(redaction: Redaction) -> tuple[str, ...]:
    """Tenants' keys of three characters or more: a shorter one is also a part of ordinary words."""
    return tuple(sorted(key for key in redaction.keys if len(key) > 2))
