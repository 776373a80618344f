# SPDX-License-Identifier: Apache-2.0
"""The load of one tenant on vn-agent: logs, streams, pages, and requests that must be refused.

Each answer must have its owner's marker, and no word of any other tenant's.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from devkit.pki import Leaf
from tests.soak import processor_time
from tests.soak.answers import OK, foreign_words
from tests.soak.load import LoadThread
from tests.soak.node import NAMESPACE, SHARED_POD, SoakNode, SoakTenant
from tests.soak.processor_time import VnodeTimes
from tests.soak.recorder import LeakError, Recorder
from vcnode_demo.tenant_client import HttpAnswer, StreamedAnswer, TenantClient

STREAM_KINDS = ("exec", "attach", "forward", "exec-websocket")
PAGES = (
    "/pods",
    "/runningpods/",
    "/stats/summary",
    "/metrics/resource",
    "/metrics/cadvisor",
    "/metrics/probes",
)
_SHOWN_CHARACTERS = 120
_COMMAND = "command=sh&input=1&output=1"
# RFC 6455, 1.3: any 16 bytes.
_WEBSOCKET_KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class AgentLoad:
    """All threads of one tenant."""

    def __init__(self, node: SoakNode, tenant: SoakTenant, recorder: Recorder) -> None:
        self._node = node
        self._tenant = tenant
        self._recorder = recorder
        self._numbers = count(1)
        self._times = VnodeTimes()
        self._log = f"/containerLogs/{NAMESPACE}/{SHARED_POD}/app"
        self._vault_log = f"/containerLogs/{NAMESPACE}/{tenant.secret_pod}/app"
        self.follow = FollowedLog(self)
        self.shell = OpenShell(self)

    # ---- clients, with the certificates that the tenant has now

    @property
    def leaf(self) -> Leaf:
        """Of the tenant's API server."""
        return self._tenant.identity.apiserver

    @property
    def _apiserver(self) -> TenantClient:
        return self._node.caller(self._tenant)

    @property
    def _metrics(self) -> TenantClient:
        return self._node.caller(self._tenant, self._tenant.identity.metrics)

    @property
    def _unregistered(self) -> TenantClient:
        return self._node.caller(self._tenant, self._tenant.identity.admin)

    def threads(self) -> list[LoadThread]:
        name = self._tenant.name
        rounds: dict[str, tuple[Callable[[], bool], Callable[[], None]]] = {
            "logs": (self.logs, _nothing),
            "streams": (self.streams, _nothing),
            "pages": (self.pages, _nothing),
            "wrong requests": (self.wrong, _nothing),
            "followed log": (self.follow.round, self.follow.close),
            "open shell": (self.shell.round, self.shell.close),
        }
        return [
            LoadThread(f"{what} of {name}", self._recorder, round_, close)
            for what, (round_, close) in rounds.items()
        ]

    def ask(self, kind: str, call: Callable[[], str], *, since_s: float | None = None) -> bool:
        return self._recorder.ask(kind, self._tenant.name, call, since_s=since_s)

    # ---- rounds: each ends at its first failure

    def logs(self) -> bool:
        paths = (self._log, f"{self._vault_log}?tailLines=1", f"{self._log}?timestamps=true&limitBytes=4096")
        return all(self.ask("log", partial(self._get, path)) for path in paths)

    def streams(self) -> bool:
        return all(self.ask(kind, partial(self._stream, kind)) for kind in STREAM_KINDS)

    def pages(self) -> bool:
        callers = (self._apiserver, self._metrics)
        asked = [(callers[number % 2], page) for number, page in enumerate(PAGES, next(self._numbers))]
        return all(self.ask("page", partial(self._page, *one)) for one in asked)

    def wrong(self) -> bool:
        """A missing pod, others' pods by each name of theirs, and clients without the right."""
        asked: list[tuple[TenantClient, str, str]] = []
        asked.append((self._apiserver, f"/containerLogs/{NAMESPACE}/missing/app", "404"))
        for other in list(self._node.tenants.values()):
            if other is not self._tenant:
                pod = other.pods[other.secret_pod]
                asked.append((self._apiserver, f"/containerLogs/{NAMESPACE}/{pod.name}/app", "404"))
                asked.append((self._apiserver, f"/containerLogs/{pod.namespace}/{pod.name}/app", "404"))
        asked.append((self._apiserver, "/configz", "403"))
        asked.append((self._metrics, self._log, "403"))
        asked.append((self._unregistered, self._log, "403"))
        return all(self.ask("refusal", partial(self._refused, *one)) for one in asked)

    # ---- requests

    def status_for(self, leaf: Leaf) -> int:
        """How a request for health with this certificate is answered. Raises RefusedError."""
        return self._node.caller(self._tenant, leaf).get("/healthz").status

    def is_served(self) -> bool:
        """Whether the tenant gets its log and is on the pages, which are some seconds old at most.

        Raises RefusedError.
        """
        is_logged = self._apiserver.get(self._vault_log).status == 200
        return is_logged and all(self._page(self._apiserver, page) == OK for page in PAGES)

    def _get(self, path: str) -> str:
        answer = self._apiserver.get(path)
        return self.checked(answer) if answer.status == 200 else failure(answer)

    def _page(self, caller: TenantClient, page: str) -> str:
        answer = caller.get(page)
        if answer.status != 200:
            return failure(answer)
        if self._tenant.identity.key in answer.text:
            raise LeakError("a page has a name of the super cluster")
        checked = self.checked(answer)
        if checked != OK or page not in processor_time.PAGES:
            return checked
        return self._times.outcome(page, processor_time.vnode_seconds(page, answer.text))

    def _refused(self, caller: TenantClient, path: str, status: str) -> str:
        answer = caller.get(path)
        self.check_foreign(_without(answer, path))
        return OK if str(answer.status) == status else failure(answer)

    def _stream(self, kind: str) -> str:
        with self.open_stream(kind) as stream:
            if stream.head.status != 101:
                return failure(stream.whole())
            return self.echo(stream, kind, is_first=True)

    def open_stream(self, kind: str) -> StreamedAnswer:
        pod = f"{NAMESPACE}/{SHARED_POD}"
        match kind:
            case "forward":
                return self._apiserver.upgrade(f"/portForward/{pod}")
            case "exec-websocket":
                headers = {
                    "Connection": "Upgrade",
                    "Upgrade": "websocket",
                    "Sec-WebSocket-Version": "13",
                    "Sec-WebSocket-Key": _WEBSOCKET_KEY,
                    "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
                }
                return self._apiserver.open("GET", f"/exec/{pod}/app?{_COMMAND}", headers)
            case "attach":
                return self._apiserver.upgrade(f"/attach/{pod}/app?input=1&output=1")
        return self._apiserver.upgrade(f"/{kind}/{pod}/app?{_COMMAND}")

    def echo(self, stream: StreamedAnswer, kind: str, *, is_first: bool) -> str:
        """Send a word with the owner's marker: exactly that comes back, behind what the pod says first."""
        word = f"{self._tenant.marker}-{next(self._numbers)}\n"
        stream.send(word.encode())
        pod = self._tenant.pods[SHARED_POD]
        if kind == "forward":
            expected = f"{self._tenant.marker} {word}"
        elif is_first:
            command = " sh" if kind != "attach" else ""
            verb = "attach" if kind == "attach" else "exec"
            expected = f"{verb} {pod.namespace}/{pod.name}/app {pod.marker}{command}\n{word}"
        else:
            expected = word
        received = stream.until(word.encode())
        self.check_foreign(received.encode())
        return OK if received == expected else f"101 with {received!r} instead of {expected!r}"

    # ---- checks

    def checked(self, answer: HttpAnswer) -> str:
        """`ok` for a body with the owner's marker. Raises LeakError."""
        self.check_foreign(answer.comparable)
        if self._tenant.marker in answer.text:
            return OK
        return f"200 without its owner's marker: {answer.text[:_SHOWN_CHARACTERS]!r}"

    def check_foreign(self, data: bytes) -> None:
        found = foreign_words(data, self._node.foreign_words(self._tenant))
        if found:
            raise LeakError(f"it has {found} of another tenant's")

    def next_line(self) -> str:
        """Write a line into the pod's log, with a number of its own."""
        line = f"{self._tenant.marker} line {next(self._numbers)}"
        self._node.say(self._tenant.pods[self._tenant.secret_pod], line)
        return line

    def open_follow(self) -> StreamedAnswer:
        return self._apiserver.open("GET", f"{self._vault_log}?follow=true&tailLines=0")

    def now_s(self) -> float:
        return self._recorder.now_s()


class FollowedLog:
    """A log that stays open: each line that its pod writes comes, in order, once."""

    def __init__(self, load: AgentLoad) -> None:
        self._load = load
        self._stream: StreamedAnswer | None = None
        self._chunks: Iterator[bytes] = iter(())
        self._leaf: Leaf | None = None
        self._well_s = 0.0

    def round(self) -> bool:
        if self._leaf is not self._load.leaf:
            self.close()  # as an API server that starts again with its new certificate
        is_ok = self._load.ask("follow", self._next, since_s=self._well_s if self._stream else None)
        self._well_s = self._load.now_s()
        if not is_ok:
            self.close()
        return is_ok

    def _next(self) -> str:
        if self._stream is None:
            self._leaf = self._load.leaf
            stream = self._load.open_follow()
            self._stream = stream
            if stream.head.status != 200:
                return failure(stream.whole())
            self._chunks = stream.chunks()
        line = self._load.next_line()
        received = next(self._chunks).decode()
        self._load.check_foreign(received.encode())
        return OK if received == f"{line}\n" else f"200 with {received!r} instead of {line!r}"

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class OpenShell:
    """An exec that stays open."""

    def __init__(self, load: AgentLoad) -> None:
        self._load = load
        self._stream: StreamedAnswer | None = None
        self._leaf: Leaf | None = None
        self._well_s = 0.0

    def round(self) -> bool:
        if self._leaf is not self._load.leaf:
            self.close()
        is_ok = self._load.ask("shell", self._next, since_s=self._well_s if self._stream else None)
        self._well_s = self._load.now_s()
        if not is_ok:
            self.close()
        return is_ok

    def _next(self) -> str:
        is_first = self._stream is None
        if self._stream is None:
            self._leaf = self._load.leaf
            self._stream = self._load.open_stream("exec")
            if self._stream.head.status != 101:
                return failure(self._stream.whole())
        return self._load.echo(self._stream, "exec", is_first=is_first)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def failure(answer: HttpAnswer) -> str:
    """A refusal as an outcome: its status and text."""
    return f"{answer.status} {' '.join(answer.text.split())[:_SHOWN_CHARACTERS]}"


def _without(answer: HttpAnswer, path: str) -> bytes:
    """The answer without the names that the request itself had."""
    data = answer.comparable
    for part in path.partition("?")[0].split("/"):
        if part:
            data = data.replace(part.encode(), b"")
    return data


def _nothing() -> None:
    pass
