# SPDX-License-Identifier: Apache-2.0
"""Makes the certificates that a case file names: authorities, registered leaves, hostile leaves.

As in VirtualCluster, all tenant authorities have the same subject and differ by their keys alone.
"""

import base64
import datetime as dt
import json
import re
import ssl
import threading
from collections.abc import Mapping
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from devkit.pki import Authority, Key, Leaf, new_key, self_signed

_SHARED_SUBJECT = "kubernetes"
_KNOWN = frozenset(
    {
        *("cert", "ca", "ca_subject", "subject", "note", "role", "not_after", "not_before"),
        *("eku", "uri_san", "bearer"),
    }
)
_USAGES = {"serverAuth": "server", "clientAuth": "client"}
_ATTRIBUTE = re.compile(r"(CN|O|OU)=(.*?)(?=\s+(?:CN|O|OU)=|\Z)", re.DOTALL)
_OIDS = {
    "CN": NameOID.COMMON_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
}
_DAY = dt.timedelta(days=1)


class IdentityError(Exception):
    """The harness does not know this word of an identity."""


def subject(text: str) -> x509.Name:
    """`O=system:masters CN=admin` as a name; values may hold any character."""
    return x509.Name([x509.NameAttribute(_OIDS[m[1]], m[2]) for m in _ATTRIBUTE.finditer(text)])


class Identities:
    """Authorities by their name in the file, and what each identity presents."""

    def __init__(self, raw: Mapping[str, Mapping[str, Any]]) -> None:
        self._raw = raw
        self._authorities: dict[str, Authority] = {}
        self._keys: dict[str, Key] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._lock = threading.Lock()

    def authority(self, name: str) -> Authority:
        if name not in self._authorities:
            own = "super" if name == "SUPER" else _SHARED_SUBJECT
            self._authorities[name] = Authority.create(own)
        return self._authorities[name]

    def key(self, leaf: str) -> Key:
        """The key of a leaf by its name.

        `leaf_a_api_old` has the key of `leaf_a_api`: the agent can refuse it for its dates alone.
        """
        leaf = re.sub(r"_(old|next)$", "", leaf)
        return self._keys.setdefault(leaf, new_key())

    def spki(self, leaf: str) -> str:
        return self.authority("SUPER").issue(leaf, key=self.key(leaf)).spki_sha256

    def raw(self, name: str) -> Mapping[str, Any]:
        """An identity as the file has it. Raises IdentityError."""
        if name not in self._raw:
            raise IdentityError(f"harness does not know the identity {name!r}")
        raw = self._raw[name]
        # In a YAML flow mapping, the comma in `bearer: token (aud kubelet, signed by x)` starts a
        # second key, without a value.
        unknown = sorted(key for key in set(raw) - _KNOWN if raw[key] is not None or " " not in key)
        if unknown:
            raise IdentityError(f"harness does not know {unknown} of the identity {name!r}")
        return raw

    def names(self) -> tuple[str, ...]:
        return tuple(self._raw)

    def everything(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self._raw.values())

    def was_registered(self, name: str) -> bool:
        """Whether its leaf was registered earlier and is not any more."""
        return "was registered" in str(self.raw(name).get("note", ""))

    def bearer(self, name: str) -> str | None:
        """A token in the form of a service account's, or None."""
        signer = self.raw(name).get("bearer")
        if signer is None:
            return None
        claims = {"iss": "api", "sub": "system:serviceaccount:kube-system:metrics", "aud": ["kubelet"]}
        parts = [{"alg": "RS256", "typ": "JWT"}, claims, {"signed": str(signer)}]
        encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts]
        return b".".join(part.rstrip(b"=") for part in encoded).decode()

    def context(self, name: str, serving: Authority) -> ssl.SSLContext:
        """TLS of a client that presents this identity and verifies the agent by `serving`."""
        with self._lock:
            return self._context(name, serving)

    def _context(self, name: str, serving: Authority) -> ssl.SSLContext:
        if name not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.load_verify_locations(cadata=serving.cert_pem.decode())
            context.set_alpn_protocols(["http/1.1"])
            leaf = self.leaf(name)
            if leaf is not None:
                leaf.load_into(context)
            self._contexts[name] = context
        return self._contexts[name]

    def leaf(self, name: str) -> Leaf | None:
        """The certificate and key of an identity. Raises IdentityError."""
        raw = self.raw(name)
        cert = raw.get("cert")
        if cert is None:
            return None
        named = subject(raw["subject"]) if "subject" in raw else None
        key = new_key() if cert in ("leaf", "self") else self.key(cert)
        if cert == "self":
            return self_signed("self", subject=named, key=self.key("leaf_a_api"))
        try:
            usages = [_USAGES[usage] for usage in raw.get("eku", ("clientAuth", "serverAuth"))]
        except KeyError as unknown:
            raise IdentityError(f"harness does not know the usage {unknown}") from None
        now = dt.datetime.now(dt.UTC)
        before, after = raw.get("not_before"), raw.get("not_after")
        if before not in (None, "future", "past") or after not in (None, "future", "past"):
            raise IdentityError(f"harness does not know the dates of the identity {name!r}")
        start = now + _DAY if before == "future" else now - 10 * _DAY
        end = now - _DAY if after == "past" else now + 10 * _DAY
        authority = self.authority(raw["ca"])
        if "ca_subject" in raw or "eku" in raw:
            # A registered key: an agent that checks the public key alone would accept this.
            key = self.key("leaf_a_api")
        return authority.issue(
            "kube-apiserver-kubelet-client",
            subject=named,
            uris=raw.get("uri_san", ()),
            usages=usages,
            not_before=start,
            not_after=end,
            key=key,
        )
