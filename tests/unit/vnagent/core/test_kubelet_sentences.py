# SPDX-License-Identifier: Apache-2.0
"""The end of a log: a kubelet's own error there has the super namespace and uid of the pod, in a path."""

import pytest

from vnagent.core.kubelet_sentences import MAX_END_BYTES, end_of_log

PATH = "/var/log/pods/ten-a-web_shop_e226d19c-c1e2-4a14-85d5-c46b2acb290f/app/0.log"
GONE = f'failed to open log file "{PATH}": open {PATH}: no such file or directory'
LINE = b"c\r\na log's line\r\n"


def chunk(text: str) -> bytes:
    return b"%x\r\n%s\r\n" % (len(text.encode()), text.encode())


LAST = b"0\r\n"


@pytest.mark.parametrize("before", [b"", LINE, LINE * 20])
@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (GONE, "vcnode: the log file is gone"),
        (f'failed to read log file "{PATH}": input/output error', "vcnode: the log file is unreadable"),
        (
            "unable to retrieve container logs for containerd://3a3a",
            "vcnode: the runtime has the container no more",
        ),
    ],
)
def test_an_error_at_the_end_names_nothing_of_the_super_cluster(
    before: bytes, error: str, shown: str
) -> None:
    assert end_of_log(before + chunk(error) + LAST) == before + chunk(shown) + LAST


@pytest.mark.parametrize(
    "end",
    [
        LAST,
        LINE + LAST,
        chunk(GONE),  # it goes on
        chunk(GONE) + LINE + LAST,
        chunk(GONE + "\n") + LAST,  # a line of a container's
        chunk(f"my app: {GONE}") + LAST,
        chunk("container status is nil") + LAST,  # names nothing
        b"5\r\n" + GONE.encode() + b"\r\n" + LAST,
        GONE.encode() + b"\r\n" + LAST,
        b"",
    ],
)
def test_what_containers_write_stays(end: bytes) -> None:
    assert end_of_log(end) is None


def test_the_longest_error_is_within_the_end() -> None:
    """A namespace and a container have 63 characters, a pod 253; the path comes twice."""
    path = f"/var/log/pods/{'n' * 63}_{'p' * 253}_{'u' * 36}/{'c' * 63}/12345.log"
    error = f'failed to open log file "{path}": open {path}: no such file or directory'
    assert len(chunk(error) + LAST) <= MAX_END_BYTES
