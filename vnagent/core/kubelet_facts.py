# SPDX-License-Identifier: Apache-2.0
"""What the node's kubelet reports of itself, and which stream protocols it has answered to.

Only what was read or seen counts: everything else is None, which is unknown.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from vnagent.core.head import ResponseHead
from vnagent.core.requests import SUBPROTOCOL, Protocol, Stream

# Gates that change what vn-agent can do (docs/spec/kubelet-api.md#what-a-kubelet-reports).
GATES = ("ExtendWebSocketsToKubelet", "KubeletFineGrainedAuthz", "PodLogsQuerySplitStreams")
# Endpoints, upgrades and subprotocols of Kubernetes make some 20.
MAX_PROTOCOLS = 64

_VERSION = re.compile(r"v[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}[0-9A-Za-z.+~-]{0,40}")


# Ends of the reasons of `upstream.page_fetch.FetchError` with which a kubelet has answered.
_ANSWERS = ("-refused", "-failed", "-malformed", "-too-large")


@dataclass(frozen=True, slots=True)
class KubeletFacts:
    """`problems` has, for each page that could not be read, why."""

    version: str | None = None
    gates: dict[str, bool] = field(default_factory=dict)
    has_debugging_handlers: bool | None = None
    read_only_port: int | None = None
    problems: tuple[str, ...] = ()

    @property
    def has_no_answer(self) -> bool:
        """Whether the kubelet has not answered, not even with a refusal."""
        return any(not each.endswith(_ANSWERS) for each in self.problems)

    def document(self) -> dict[str, object]:
        """The facts in /status; null is unknown."""
        return {
            "version": self.version,
            "featureGates": {name: self.gates.get(name) for name in GATES},
            "enableDebuggingHandlers": self.has_debugging_handlers,
            "readOnlyPort": self.read_only_port,
            "problems": list(self.problems),
        }


def version_of(metrics: bytes) -> str | None:
    """The kubelet's version in its page /metrics (`kubernetes_build_info`)."""
    row = _row(metrics, b"kubernetes_build_info{")
    value = row.partition(b'git_version="')[2].partition(b'"')[0].decode("latin-1")
    return value if _VERSION.fullmatch(value) else None


def gates_of(metrics: bytes) -> dict[str, bool]:
    """The known gates in /metrics (`kubernetes_feature_enabled`, 1.26).

    A kubelet before or after a gate's time lacks its row: whether it acts as with the gate stays unknown.
    """
    found = {}
    for name in GATES:
        row = _row(metrics, b'kubernetes_feature_enabled{name="%s",' % name.encode("ascii"))
        value = row.rpartition(b" ")[2]
        if value in (b"0", b"1"):
            found[name] = value == b"1"
    return found


def _row(page: bytes, start: bytes) -> bytes:
    """The first sample that begins so. A label's value has no line break (exposition format), so a line
    that begins so is a sample."""
    at = 0 if page.startswith(start) else page.find(b"\n" + start) + 1
    if not at and not page.startswith(start):
        return b""
    end = page.find(b"\n", at)
    return page[at : end if end >= 0 else len(page)].rstrip(b"\r")


def configured_of(configz: bytes) -> tuple[bool | None, int | None]:
    """enableDebuggingHandlers and readOnlyPort in the kubelet's /configz.

    v1beta1 leaves a port of 0 out (`omitempty`), and never a defaulted pointer.
    """
    try:
        document: Any = json.loads(configz)
    except (ValueError, RecursionError):
        return None, None
    config = document.get("kubeletconfig") if isinstance(document, dict) else None
    handlers = config.get("enableDebuggingHandlers") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(handlers, bool):
        return None, None
    port = config.get("readOnlyPort", 0)
    is_port = isinstance(port, int) and not isinstance(port, bool) and 0 <= port < 65536
    return handlers, port if is_port else None


class StreamProtocols:
    """The subprotocols that the server upstream has switched to, or refused, by the last answer to each."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str, str], bool] = {}

    def accepted(self, request: Stream, head: ResponseHead) -> None:
        """The server has switched protocols for `request` by `head`."""
        is_spdy = request.upgrade.protocol is Protocol.SPDY
        name = head.fields.get(b"x-stream-protocol-version" if is_spdy else b"sec-websocket-protocol")
        subprotocol = "" if name is None else name.decode("latin-1")
        if name is None or SUBPROTOCOL.fullmatch(subprotocol):
            self._note(request, subprotocol, is_accepted=True)

    def refused(self, request: Stream) -> None:
        """The server knows none of the offered subprotocols. Of several, it may have read the first alone."""
        if len(request.upgrade.subprotocols) == 1:
            self._note(request, request.upgrade.subprotocols[0], is_accepted=False)

    def _note(self, request: Stream, subprotocol: str, *, is_accepted: bool) -> None:
        key = (request.endpoint.value, request.upgrade.protocol.value, subprotocol)
        if key in self._answers or len(self._answers) < MAX_PROTOCOLS:
            self._answers[key] = is_accepted

    def forget(self) -> None:
        """Another server answers from now on."""
        self._answers.clear()

    def document(self) -> list[dict[str, str | bool]]:
        """All answers, in /status."""
        return [
            {"endpoint": endpoint, "upgrade": upgrade, "subprotocol": name, "isAccepted": is_accepted}
            for (endpoint, upgrade, name), is_accepted in sorted(self._answers.items())
        ]


def merged_protocols(documents: Iterable[Iterable[dict[str, str | bool]]]) -> list[dict[str, str | bool]]:
    """The answers of all processes, each once. What one was refused and another granted is accepted."""
    found: dict[tuple[str, str, str], dict[str, str | bool]] = {}
    for each in (answer for document in documents for answer in document):
        key = (str(each["endpoint"]), str(each["upgrade"]), str(each["subprotocol"]))
        if key not in found or each["isAccepted"]:
            found[key] = each
    return [found[key] for key in sorted(found)]
