# SPDX-License-Identifier: Apache-2.0
"""What a tenant reads of a refusal by the kubelet or the super API server (kubelet API 3, errors)."""

import json

import pytest

from vnagent.core.audit import HOP_FAILURES
from vnagent.core.replies import (
    TEXTS,
    translate_refusal,
)
from vnagent.core.requests import ContainerLogs, Endpoint, Protocol, Stream, Upgrade

LOGS = ContainerLogs("web", "shop", "app", (), False)
SPDY = Stream(
    Endpoint.EXEC, "web", "shop", None, "app", (), Upgrade(Protocol.SPDY, ("v4.channel.k8s.io",), None)
)
WEBSOCKET = SPDY._replace(upgrade=Upgrade(Protocol.WEBSOCKET, (), "key"))
NEUTRAL = "the kubelet of this node rejected the request"
WAITING = b'container "app" in pod "shop_ten-a-web" is waiting to start: ContainerCreating'


Answer = tuple[int, str, str | None]
"""Status, reason for the audit, and text."""
Case = tuple[int, bytes, Answer, Answer | None]
"""Status and body of a hop, and what becomes of them for a log and for a stream."""
SAME = None
"""For a stream as for a log."""

OF_THE_KUBELET: list[Case] = [
    # About the request: the number stays.
    (404, b'pod "s" is gone', (404, "kubelet-not-found", None), SAME),
    (400, b"bad", (400, "kubelet-rejected", NEUTRAL), SAME),
    (422, b"bad", (422, "kubelet-rejected", NEUTRAL), SAME),
    (429, b"", (429, "kubelet-rejected", NEUTRAL), SAME),
    # About our credential: nothing of it reaches the tenant.
    (401, b"Unauthorized", (502, "kubelet-refused", None), SAME),
    (
        403,
        b"Forbidden (user=system:vn-agent:node-1, verb=get, resource=nodes)",
        (502, "kubelet-refused", None),
        SAME,
    ),
    # About the node.
    (500, b"boom", (502, "kubelet-failed", None), (502, "kubelet-refused-upgrade", None)),
    (503, b"", (502, "kubelet-failed", None), (502, "kubelet-refused-upgrade", None)),
    (405, b"", (502, "kubelet-failed", None), (502, "kubelet-refused-upgrade", None)),
    # Sentences that help and name nothing but the tenant's own pod, in our words.
    (400, WAITING, (400, "kubelet-rejected", "container is waiting to start: ContainerCreating"), SAME),
    (
        400,
        b'previous terminated container "app" in pod "shop" not found\n',
        (400, "kubelet-rejected", "previous terminated container not found"),
        SAME,
    ),
    (
        500,
        b'unable to upgrade connection: container not found ("app_ten-a-web")',
        (502, "kubelet-failed", "container is not running"),
        (500, "kubelet-failed", "container is not running"),
    ),
    (
        400,
        b"you must specify at least 1 of stdin, stdout, stderr",
        (400, "kubelet-rejected", "you must specify at least 1 of stdin, stdout, stderr"),
        SAME,
    ),
    (400, b'"port" query parameter is required', (400, "kubelet-rejected", "port is required"), SAME),
    (
        400,
        b'container "app" in pod "shop" is not available',
        (400, "kubelet-rejected", "container is not available"),
        SAME,
    ),
    (
        400,
        b'container "app" in pod "shop" is terminated',
        (400, "kubelet-rejected", "container is terminated"),
        SAME,
    ),
]


TEN, ID = "shop_ten-a-web", "containerd://" + "3a" * 32
PATH = "/var/log/pods/ten-a-web_shop_e226d19c/app/0.log"
# Each sentence of the kubelet's own sources (see `replies`) with its status there, and what a tenant reads.
OF_LOGS = (
    ('container "app" in pod "shop" is not available', 400, "container is not available"),
    (
        'previous terminated container "app" in pod "shop" not found',
        400,
        "previous terminated container not found",
    ),
    ('container "app" in pod "shop" is terminated', 400, "container is terminated"),
    (
        'container "app" in pod "shop" is waiting to start: image can\'t be pulled',
        400,
        "container is waiting to start: image can't be pulled",
    ),
    (
        'container "app" in pod "shop" is waiting to start: trying and failing to pull image',
        400,
        "container is waiting to start: trying and failing to pull image",
    ),
    *(
        (
            f'container "app" in pod "shop" is waiting to start: {each}',
            400,
            f"container is waiting to start: {each}",
        )
        for each in (
            *("ContainerCreating", "PodInitializing", "CrashLoopBackOff", "RunContainerError"),
            *("ImageInspectError", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError"),
            *("PreCreateHookError", "CreateContainerError", "PreStartHookError", "PostStartHookError"),
        )
    ),
    (
        'container "app" in pod "shop" is waiting to start - no logs yet',
        400,
        "container is waiting to start - no logs yet",
    ),
    ('pod "shop" cannot be found - no logs available', 400, "pod cannot be found - no logs available"),
    (f"unable to retrieve container logs for {ID}", 400, "the runtime has the container no more"),
    ("container status is nil", 400, "the runtime has no status of the container"),
    (
        f'failed to open log file "{PATH}": open {PATH}: no such file or directory',
        400,
        "the log file is gone",
    ),
    (f'failed to open log file "{PATH}": open {PATH}: permission denied', 400, "the log file is unreadable"),
    (f'failed to read log file "{PATH}": input/output error', 400, "the log file is unreadable"),
    (f'failed to tail 10 lines of log file "{PATH}": input/output error', 400, "the log file is unreadable"),
    (f'failed to seek 0 in log file "{PATH}": bad file descriptor', 400, "the log file is unreadable"),
    (f'failed to reset seek in log file "{PATH}": bad file descriptor', 400, "the log file is unreadable"),
    (
        f'failed to try resolving symlinks in path "{PATH}": lstat {PATH}: no',
        400,
        "the log file is unreadable",
    ),
    (
        "failed to create fsnotify watcher: too many open files",
        400,
        "the kubelet cannot follow the log: the node has no inotify instance or watch left",
    ),
    (
        'failed to watch directory "/var/log/pods/ten-a-web_shop_e226d19c/app": no space left on device',
        400,
        "the kubelet cannot follow the log: the node has no inotify instance or watch left",
    ),
    ('unsupported log format: "ten-a-web"', 400, "the log file is of no known format"),
    ('failed to get parse function: unsupported log format: "x"', 400, "the log file is of no known format"),
    ('{"message": "Unable to decode query."}', 400, "unable to decode query"),
    ('{"message": "Invalid request."}', 422, "invalid combination of log options"),
    ('invalid stream type "Std"', 400, "invalid stream type"),
    (
        'unable to return the given log stream: "Stdout". '
        "Please enable PodLogsQuerySplitStreams feature gate in kubelet",
        400,
        "the kubelet has no separate streams (feature gate PodLogsQuerySplitStreams)",
    ),
)
OF_STREAMS = (
    ('container not found ("app")', 500, "container is not running"),
    (f"container app not found in pod {TEN}", 500, "container is not running"),
    (f"pod {TEN} not found", 500, "pod is not running"),
    (f'pod not found ("{TEN}")', 500, "pod is not running"),
    (f"failed to find sandboxID for pod {TEN}(s-1)", 500, "pod is not running"),
    (
        f"failed to find sandboxID for pod {TEN}(s-1): rpc error: code = Unavailable",
        500,
        "pod is not running",
    ),
    ("rpc error: code = Unknown desc = sandbox container is not running", 500, "pod is not running"),
    (
        "rpc error: code = Unknown desc = container is in CONTAINER_EXITED state",
        500,
        "container is in CONTAINER_EXITED state",
    ),
    (
        "rpc error: code = InvalidArgument desc = tty and stderr cannot both be true",
        500,
        "tty and stderr cannot both be true",
    ),
    (
        "rpc error: code = InvalidArgument desc = one of stdin, stdout, or stderr must be set",
        500,
        "one of stdin, stdout, or stderr must be set",
    ),
    (
        "rpc error: code = ResourceExhausted desc = maximum number of in-flight requests exceeded",
        429,
        "maximum number of in-flight requests exceeded",
    ),
    (
        "you must specify at least 1 of stdin, stdout, stderr",
        400,
        "you must specify at least 1 of stdin, stdout, stderr",
    ),
    ('query parameter "port" is required', 400, "port is required"),
    ('query parameter "port" cannot be empty', 400, "port is required"),
    ('unable to parse "x" as a port: strconv.ParseUint: parsing "x": invalid syntax', 400, "invalid port"),
    ('port "0" must be > 0', 400, "invalid port"),
)


@pytest.mark.parametrize(("request_", "sentences"), [(LOGS, OF_LOGS), (SPDY, OF_STREAMS)])
def test_each_sentence_of_a_kubelet_comes_through(
    request_: ContainerLogs | Stream, sentences: tuple[tuple[str, int, str], ...]
) -> None:
    """With the kubelet's status, in words that name nothing of the super cluster or the node."""
    for sentence, status, shown in sentences:
        reason = "kubelet-failed" if status == 500 else "kubelet-rejected"
        assert translate_refusal(request_, status, sentence.encode()) == (status, reason, shown), sentence
        for secret in ("ten-a", "/var/log", "3a3a", "rpc error"):
            assert secret not in shown
        # Not as a part of a text: the rest may name anything.
        *_, text = translate_refusal(request_, status, f"{sentence} of ten-a-web".encode())
        assert "ten-a" not in (text or "")


@pytest.mark.parametrize(
    "sentence",
    [
        'pod "shop" does not exist',
        'container "app" not found in pod "shop"',
        "pod does not exist",
        "pod not found",
        "rpc error: code = NotFound desc = container not found",
    ],
)
def test_what_a_kubelet_does_not_find_is_missing(sentence: str) -> None:
    for request in (LOGS, SPDY):
        assert translate_refusal(request, 404, sentence.encode()) == (404, "kubelet-not-found", None)


def test_switched_off_handlers_are_the_nodes_fault() -> None:
    shown = "logs and streams are switched off at the kubelet of this node (enableDebuggingHandlers)"
    for request in (LOGS, SPDY):
        found = translate_refusal(request, 405, b"Debug endpoints are disabled.\n")
        assert found == (502, "kubelet-failed", shown)


def test_a_silent_websocket_refusal_names_the_subprotocol() -> None:
    """With a word it is about our credential; so is any other stream's or log's."""
    status, reason, text = translate_refusal(WEBSOCKET, 403, b"")
    assert (status, reason) == (403, "kubelet-refused-upgrade")
    assert "none of the WebSocket subprotocols" in (text or "")
    refused = (502, "kubelet-refused", None)
    assert translate_refusal(WEBSOCKET, 403, b"Forbidden (user=system:vn-agent:node-1)") == refused
    assert translate_refusal(WEBSOCKET, 401, b"") == refused
    assert translate_refusal(SPDY, 403, b"") == refused
    assert translate_refusal(LOGS, 403, b"") == refused


def status_of(code: int, message: str) -> bytes:
    return json.dumps({"kind": "Status", "status": "Failure", "message": message, "code": code}).encode()


REFUSED = "the super cluster's API server rejected the request"


OF_THE_API_SERVER: list[Case] = [
    (404, status_of(404, 'pods "shop-x7" not found'), (404, "apiserver-not-found", None), SAME),
    # About our credential.
    (401, status_of(401, "Unauthorized"), (502, "apiserver-refused", None), SAME),
    (
        403,
        status_of(403, 'User "vcnode:vn-agent:node-1" cannot get resource "pods/log"'),
        (502, "apiserver-refused", None),
        SAME,
    ),
    # The kubelet's sentences, of a log in a Status, of an upgrade as they are.
    (
        400,
        status_of(400, WAITING.decode()),
        (400, "apiserver-rejected", "container is waiting to start: ContainerCreating"),
        SAME,
    ),
    (
        500,
        status_of(500, 'Internal error occurred: container not found ("app_ten-a-web")'),
        (502, "apiserver-failed", "container is not running"),
        (500, "apiserver-failed", "container is not running"),
    ),
    (
        500,
        b'unable to upgrade connection: container not found ("app_ten-a-web")',
        (502, "apiserver-failed", "container is not running"),
        (500, "apiserver-failed", "container is not running"),
    ),
    # Others, with names of the super cluster, do not pass.
    (
        400,
        status_of(400, "container app is not valid for pod shop-x7"),
        (400, "apiserver-rejected", REFUSED),
        SAME,
    ),
    (422, b"{", (422, "apiserver-rejected", REFUSED), SAME),
    (429, b"[" * 4096, (429, "apiserver-rejected", REFUSED), SAME),
    (400, b'{"message": 7}', (400, "apiserver-rejected", REFUSED), SAME),
    (400, b"[1]", (400, "apiserver-rejected", REFUSED), SAME),
    (
        500,
        status_of(500, "Internal error occurred: error dialing backend: dial tcp 10.0.0.7:10250"),
        (502, "apiserver-failed", None),
        (502, "apiserver-refused-upgrade", None),
    ),
    (503, b"", (502, "apiserver-failed", None), (502, "apiserver-refused-upgrade", None)),
]


@pytest.mark.parametrize(
    ("hop", "status", "body", "of_logs", "of_streams"),
    [
        *(("kubelet", *case) for case in OF_THE_KUBELET),
        *(("apiserver", *case) for case in OF_THE_API_SERVER),
    ],
)
def test_refusals_of_the_hops(
    hop: str, status: int, body: bytes, of_logs: Answer, of_streams: Answer | None
) -> None:
    assert translate_refusal(LOGS, status, body, hop) == of_logs
    assert translate_refusal(SPDY, status, body, hop) == (of_streams or of_logs)


def test_each_failure_of_each_hop_has_a_text() -> None:
    """What is not answered in words of its own."""
    own = {"rejected", "not-found"}
    for reason in HOP_FAILURES - {"page-malformed", "client-left"}:
        hop, _, failure = reason.partition("-")
        assert (reason in TEXTS) == (failure not in own)
        if reason in TEXTS:
            assert ("API server" in TEXTS[reason]) == (hop == "apiserver")


@pytest.mark.parametrize(
    "body",
    [
        WAITING + b"; ask secret",
        b"secret " + WAITING,
        b'container "x" in pod "y" is waiting to start: secret-',
        b'container not found ("a"); secret',
        b'secret container not found ("secret")',
        b"\xff\xfesecret",
        b"secret" * 1000,
    ],
)
@pytest.mark.parametrize("status", [400, 404, 422, 429, 401, 403, 500])
def test_unknown_texts_of_the_kubelet_are_replaced(status: int, body: bytes) -> None:
    for request in (LOGS, SPDY):
        _, _, text = translate_refusal(request, status, body)
        assert "secret" not in (text or "").replace("container is waiting to start: secret", "")
