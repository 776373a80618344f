# SPDX-License-Identifier: Apache-2.0
"""Why a daemon cannot ask its peer, and what an operator does about it. Pure.

The edges that get an error sort it into a `Cause` (`daemonkit.os_errors`, the clients). A `Hop` is the peer
as the configuration names it. Both together give a `Fault`: what `/readyz`, `/status` and `vcnode status`
show. This is the one place that maps causes to remedies.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

# A peer chooses its message; it is on `/readyz`, on `systemctl status` and in the log.
MAX_ERROR_CHARACTERS = 300


class Cause(enum.Enum):
    """What is wrong between the daemon and its peer; the values are reasons for machines."""

    CONFIGURATION = "ConfigurationInvalid"
    MISSING = "NotFound"
    DENIED = "PermissionDenied"
    REFUSED = "ConnectionRefused"
    ADDRESS_REFUSED = "AddressRefused"
    CLOSED = "ConnectionClosed"
    UNREACHABLE = "Unreachable"
    TIMEOUT = "Timeout"
    NAME_UNKNOWN = "NameNotResolved"
    UNTRUSTED = "CertificateUntrusted"
    EXPIRED = "CertificateExpired"
    WRONG_NAME = "CertificateNameMismatch"
    TLS = "TlsFailed"
    UNAUTHENTICATED = "Unauthorized"
    FORBIDDEN = "Forbidden"
    ABSENT = "ResourceNotInstalled"
    OVERLOADED = "ServerError"
    MALFORMED = "AnswerInvalid"
    NOT_SYNCED = "NotSynced"
    OTHER = "Unknown"


class HopKind(enum.Enum):
    """The kinds of peers that a daemon asks."""

    API_SERVER = "API server"
    KATA_BRIDGE = "kata-bridge"
    KUBELET = "kubelet"
    CRI = "CRI"
    NRI = "NRI"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Fault:
    """One failure: `hop` is the peer with its address, `error` one bounded line."""

    hop: str
    cause: Cause
    error: str
    remedy: str

    @property
    def text(self) -> str:
        return f"{self.hop}: {self.error}"

    def failure_document(self, seconds: float) -> dict[str, object]:
        """A source's `failure` in `/status`, which lasts for `seconds`; `message` is hop and error in one."""
        return {
            "message": self.text,
            "seconds": round(seconds, 3),
            "hop": self.hop,
            "reason": self.cause.value,
            "error": self.error,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True)
class Hop:
    """A peer: `setting` is the configuration's key that leads to it, `rights` the file that grants access."""

    kind: HopKind
    name: str
    setting: str = ""
    rights: str = ""

    def fault(self, cause: Cause, error: str, address: str = "") -> Fault:
        """A failure at this hop; `address` is where it was asked."""
        hop = one_line(f"{self.name} {address}".rstrip())
        return Fault(hop, cause, one_line(error) or "no reason given", self.remedy(cause))

    def remedy(self, cause: Cause) -> str:
        """What to do about a failure of this cause."""
        remedy = _REMEDIES[self.kind].get(cause) or _OF_ALL.get(cause, _SEE_LOG)
        return remedy.format(setting=self.setting, rights=self.rights)


def one_line(text: str) -> str:
    """A text of a peer for a line among others: printable, without line breaks, bounded."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MAX_ERROR_CHARACTERS else f"{line[:MAX_ERROR_CHARACTERS]}..."


def cause_of_status(code: int) -> Cause:
    """What an API server's or a kubelet's refusal means, by its HTTP status code."""
    if code == 401:
        return Cause.UNAUTHENTICATED
    if code == 403:
        return Cause.FORBIDDEN
    if code == 404:
        return Cause.ABSENT
    return Cause.OVERLOADED if code == 429 or code >= 500 else Cause.OTHER


_SEE_LOG = "see this daemon's log"

_OF_ALL: Mapping[Cause, str] = {
    Cause.UNREACHABLE: "check {setting}, and routes and firewalls from this node",
    Cause.TIMEOUT: "check the load of the peer, and routes and firewalls from this node",
}

_REMEDIES: Mapping[HopKind, Mapping[Cause, str]] = {
    HopKind.API_SERVER: {
        Cause.CONFIGURATION: "correct {setting}: the kubeconfig and the files that it names must be valid,"
        " and readable for this daemon's user",
        Cause.NAME_UNKNOWN: "check `server` in {setting}, and the DNS of this node",
        Cause.REFUSED: "check that the API server runs, and `server` in {setting}",
        Cause.ADDRESS_REFUSED: "write an address of that control plane alone, or a name that leads to no"
        " other, as `server` in {setting}",
        Cause.CLOSED: "check the API server and the load balancer before it",
        Cause.UNREACHABLE: "check `server` in {setting}, and routes and firewalls from this node",
        Cause.UNTRUSTED: "give {setting} the certificate-authority that issued the API server's certificate",
        Cause.EXPIRED: "renew the server's certificate, or correct the clock of this node",
        Cause.WRONG_NAME: "check `server` and tls-server-name in {setting}: the server's certificate has"
        " other names",
        Cause.TLS: "check the client certificate in {setting}, and that an API server listens there",
        Cause.UNAUTHENTICATED: "renew the client certificate or token in {setting}: it has expired, or the"
        " server does not know it",
        Cause.FORBIDDEN: "apply {rights}, bound to the user of {setting}",
        Cause.ABSENT: "apply packaging/crds if it defines the resource; check `server` in {setting}",
        Cause.OVERLOADED: "check the API server; it is asked again with backoff",
        Cause.MALFORMED: "check `server` in {setting}: another program answers there",
    },
    HopKind.KATA_BRIDGE: {
        Cause.MISSING: "start kata-bridge on this node; {setting} must be its listen.socket",
        Cause.DENIED: "add this daemon's user to the group of kata-bridge's listen.group (vcnode), and"
        " restart the daemon",
        Cause.REFUSED: "start kata-bridge: the process behind the socket has ended",
        Cause.CLOSED: "see kata-bridge's log: it restarts, or refuses this daemon's user (listen.users,"
        " listen.group)",
        Cause.TIMEOUT: "see kata-bridge's log; restart it if it hangs",
        Cause.FORBIDDEN: "install kata-bridge and this daemon from one release",
        Cause.NOT_SYNCED: "run `vcnode status`: kata-bridge has not synced the sandboxes of this node",
    },
    HopKind.KUBELET: {
        Cause.UNREACHABLE: "check that the kubelet runs, and kubelet.address and kubelet.port",
        Cause.CLOSED: "see the kubelet's log",
        Cause.REFUSED: "start the kubelet; compare kubelet.address and kubelet.port with its configuration",
        Cause.UNTRUSTED: "give kubelet.caFile the CA of the kubelet's serving certificate: with"
        " serverTLSBootstrap the cluster's, else /var/lib/kubelet/pki/kubelet.crt; check the certificate's"
        " dates, and kubelet.serverName",
        Cause.EXPIRED: "renew the kubelet's serving certificate (`kubectl get csr`), or correct the node's"
        " clock",
        Cause.WRONG_NAME: "set kubelet.serverName to a name in the kubelet's serving certificate",
        Cause.TLS: "check kubelet.clientCertificateFile, and that the kubelet listens on kubelet.port",
        Cause.TIMEOUT: "see the kubelet's log: it is overloaded or hangs; check kubelet.address",
        Cause.UNAUTHENTICATED: "issue kubelet.clientCertificateFile by the authority of the kubelet's"
        " authentication.x509",
        Cause.FORBIDDEN: "apply {rights} for this node, bound to the user of kubelet.clientCertificateFile,"
        " whose CA the kubelet must know (authentication.x509)",
        Cause.OVERLOADED: "see the kubelet's log",
        Cause.MALFORMED: "check kubelet.address and kubelet.port: another program answers there",
    },
    HopKind.CRI: {
        Cause.MISSING: "start the container runtime; check {setting}: containerd's is"
        " /run/containerd/containerd.sock",
        Cause.DENIED: "run kata-bridge as root",
        Cause.REFUSED: "start the container runtime",
        Cause.TIMEOUT: "see the container runtime's log: it is overloaded or hangs",
    },
    HopKind.NRI: {
        Cause.MISSING: "start the container runtime and enable NRI in it, or remove {setting}",
        Cause.DENIED: "run kata-bridge as root",
        Cause.REFUSED: "start the container runtime, and enable NRI in it",
        Cause.FORBIDDEN: "see the container runtime's log: another plugin may have this name and index",
    },
    HopKind.FILE: {
        Cause.CONFIGURATION: "correct {setting}",
        Cause.OTHER: "correct {setting}",
        Cause.MISSING: "make {setting}, or correct the path in the configuration",
        Cause.DENIED: "make {setting} readable for this daemon's user",
    },
}
