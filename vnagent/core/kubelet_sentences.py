# SPDX-License-Identifier: Apache-2.0
"""The sentences of a kubelet that help a tenant, and what the tenant reads of each.

They are those of Kubernetes 1.34 for logs, exec, attach and portForward: pkg/kubelet (server/server.go,
kubelet_pods.go, kuberuntime), pkg/logs of k8s.io/cri-client, pkg/cri/streaming of k8s.io/kubelet; and some
of containerd's. They have names of the super cluster, paths and ids, so each is matched as a whole and shown
in words of a closed set. Any other text stays with vn-agent.
"""

import re

_CONTAINER = r'container "[^"]*" in pod "[^"]*"'
_RPC = r"rpc error: code = [A-Za-z]{1,32} desc = "
_LOG_FILE = r"failed to (?:open|read|tail -?\d{1,19} lines of|seek -?\d{1,19} in|reset seek in) log file "
# regex-input: 2048 characters: `known_sentence` is given no longer text
_SENTENCES: tuple[tuple[re.Pattern[str], str], ...] = (
    # -- logs
    (
        re.compile(
            rf"{_CONTAINER} is waiting to start: (image can't be pulled|trying and failing to pull image)",
            re.S,
        ),
        r"container is waiting to start: \1",
    ),
    (
        re.compile(rf"{_CONTAINER} is waiting to start: ([A-Za-z]{{1,64}})\b.*", re.S),
        r"container is waiting to start: \1",
    ),
    (
        re.compile(rf"{_CONTAINER} is waiting to start - no logs yet", re.S),
        "container is waiting to start - no logs yet",
    ),
    (re.compile(rf"{_CONTAINER} is not available", re.S), "container is not available"),
    (re.compile(rf"{_CONTAINER} is terminated", re.S), "container is terminated"),
    (
        re.compile(rf"previous terminated {_CONTAINER} not found", re.S),
        "previous terminated container not found",
    ),
    (
        re.compile(r'pod "[^"]*" cannot be found - no logs available', re.S),
        "pod cannot be found - no logs available",
    ),
    (
        re.compile(r"unable to retrieve container logs for [^ ]*", re.S),
        "the runtime has the container no more",
    ),
    (re.compile(r"container status is nil", re.S), "the runtime has no status of the container"),
    (re.compile(rf'{_LOG_FILE}"[^"]*": .*\bno such file or directory', re.S), "the log file is gone"),
    (
        re.compile(rf'(?:{_LOG_FILE}|failed to try resolving symlinks in path )"[^"]*": .*', re.S),
        "the log file is unreadable",
    ),
    (
        re.compile(r"failed to (?:create fsnotify watcher: |watch directory ).*", re.S),
        "the kubelet cannot follow the log: the node has no inotify instance or watch left",
    ),
    (
        re.compile(r"(?:unsupported log format: |failed to get parse function: ).*", re.S),
        "the log file is of no known format",
    ),
    (re.compile(r'\{"message": "Unable to decode query\."\}', re.S), "unable to decode query"),
    (re.compile(r'\{"message": "Invalid request\."\}', re.S), "invalid combination of log options"),
    (re.compile(r'invalid stream type "[^"]*"', re.S), "invalid stream type"),
    (
        re.compile(
            r'unable to return the given log stream: "[^"]*"\. Please enable PodLogsQuerySplitStreams .*',
            re.S,
        ),
        "the kubelet has no separate streams (feature gate PodLogsQuerySplitStreams)",
    ),
    # -- exec, attach, portForward
    (re.compile(r'.*container not found \("[^"]*"\)', re.S), "container is not running"),
    (re.compile(r"container [^ ]+ not found in pod [^ ]+", re.S), "container is not running"),
    (re.compile(r'pod not found \("[^"]*"\)', re.S), "pod is not running"),
    (re.compile(r"pod [^ ]+ not found", re.S), "pod is not running"),
    (re.compile(r"failed to find sandboxID for pod .*", re.S), "pod is not running"),
    (re.compile(rf"(?:{_RPC})?.*sandbox container is not running", re.S), "pod is not running"),
    (
        re.compile(rf"(?:{_RPC})?.*\bcontainer is in ([A-Z_]{{1,32}}) state", re.S),
        r"container is in \1 state",
    ),
    (
        re.compile(
            rf"(?:{_RPC})?(tty and stderr cannot both be true"
            r"|one of stdin, stdout,? (?:or|and) stderr must be set"
            r"|maximum number of in-flight requests exceeded)",
            re.S,
        ),
        r"\1",
    ),
    (re.compile(r"(you must specify at least 1 of stdin, stdout, stderr)", re.S), r"\1"),
    (
        re.compile(
            r'(?:"?port"? query parameter|query parameter "port") (?:is required|cannot be empty)', re.S
        ),
        "port is required",
    ),
    (re.compile(r'(?:unable to parse "[^"]*" as a port: .*|port "[^"]*" must be > 0)', re.S), "invalid port"),
)


def known_sentence(text: str) -> str | None:
    """What a tenant reads of a kubelet's text of up to 2048 characters; None if that is not known."""
    for pattern, known in _SENTENCES:
        match = pattern.fullmatch(text)
        if match is not None:
            return match.expand(known)
    return None


# Of the end of a log, in which an error is looked for: a chunk's size, a sentence with two paths, the last
# chunk.
MAX_END_BYTES = 1200
_LAST_CHUNK = b"\r\n0\r\n"


def end_of_log(end: bytes) -> bytes | None:
    """What a tenant gets instead of the last bytes of a log in chunks, `end`; None where they may stay.

    A kubelet answers 200 before it opens the log's file. If that fails, the error is the last chunk of the
    body, with the file's path: the pod's super namespace and uid. Go writes it and the end at once.
    """
    if not end.endswith(_LAST_CHUNK):
        return None
    before, _, text = end.removesuffix(_LAST_CHUNK).rpartition(b"\r\n")
    earlier, separator, size = before.rpartition(b"\r\n")
    names = b"/var/log/" in text or text.startswith(b"unable to retrieve container logs for ")
    if not names or b"\n" in text:
        return None
    sentence = known_sentence(text.decode("utf-8", "replace"))
    if sentence is None or size.lower() != b"%x" % len(text):
        return None
    shown = f"vcnode: {sentence}".encode()
    return earlier + separator + b"%x\r\n%s" % (len(shown), shown) + _LAST_CHUNK
