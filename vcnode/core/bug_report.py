# SPDX-License-Identifier: Apache-2.0
"""Replaces the names of tenants in texts that leave a node.

Names are those that the daemons' own documents have: a tenant's key, namespaces, pods, networks. Each gets
one pseudonym for the whole report, in all texts, and so does what contains a tenant's key, or reads
`namespace/name`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
# Files that are named for a tenant: those in a directory of tenants, and kubeconfigs.
_TENANT_FILE = re.compile(r"/(?:tenants|clients)/([A-Za-z0-9_-][A-Za-z0-9_.-]{0,252})")
_KUBECONFIG = re.compile(r"/([A-Za-z0-9_-]{1,253})\.kubeconfig\b")
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
        *(
            "vc-operator",
            "dnsconfig-webhook",
            "containerd",
            "kubelet",
            "superCluster",
            "apiserver",
            "prometheus",
        ),
    }
)
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
    """Pseudonyms by name, in lower case."""

    pseudonyms: dict[str, str] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
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


def replace_names(redaction: Redaction, texts: Mapping[str, str]) -> dict[str, str]:
    """All texts with pseudonyms for the names that are known, contain a tenant's key, or stand as pairs.

    Raises TooManyNamesError.
    """
    for text in texts.values():
        for file in (*_TENANT_FILE.findall(text), *_KUBECONFIG.findall(text)):
            name = file.partition(".")[0]
            if name and name not in _COMMON:
                redaction.add(name, "tenant")
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
