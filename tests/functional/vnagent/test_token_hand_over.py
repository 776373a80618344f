# SPDX-License-Identifier: Apache-2.0
"""Ports for bearer tokens from one process to the next, with a socket in systemd's place."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.cases.client import CaseClient
from tests.cases.daemon import ROOT
from tests.functional.vnagent.node import DEADLINE_S, NAME
from tests.functional.vnagent.shop_and_bank import status_of
from tests.functional.vnagent.token_node import TENANTS, TokenNode, request
from tests.waiting import wait_until

# Puts the descriptors where sd_listen_fds(3) has them. `LISTEN_PID` is that of the daemon.
PROGRAM = """
import fcntl, os, sys
config, *kept = sys.argv[1:]
for place, descriptor in enumerate([fcntl.fcntl(int(each), fcntl.F_DUPFD, 100) for each in kept]):
    os.dup2(descriptor, 3 + place)
    os.close(descriptor)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", "vnagent", "--config", config])
"""


@contextlib.contextmanager
def agent(tokens: TokenNode, notify: Path, kept: Mapping[str, int]) -> Iterator[None]:
    """A process of vn-agent below the service manager at `notify`, which has kept these listeners."""
    config, log = tokens.node.daemon.config, tokens.node.daemon.log
    environment = {
        "NOTIFY_SOCKET": str(notify),
        "LISTEN_FDS": str(len(kept)),
        "LISTEN_FDNAMES": ":".join(kept),
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(config), *map(str, kept.values())],
            cwd=ROOT,
            env=environment,
            pass_fds=tuple(kept.values()),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(tokens.node.daemon.is_ready, within_s=DEADLINE_S)
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def stored(systemd: socket.socket) -> dict[str, int]:
    """The descriptors that the daemon has given to its service manager so far, by their names."""
    found = {}
    with contextlib.suppress(BlockingIOError):
        while True:
            message, descriptors, _, _ = socket.recv_fds(systemd, 4096, 4)
            if message.startswith(b"FDSTORE=1\nFDNAME="):
                found[message.rpartition(b"=")[2].decode()] = descriptors[0]
    return found


def close_all(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        os.close(each)


def test_ports_for_tokens_outlive_a_process(tmp_path: Path) -> None:
    """A scraper that connects between two processes waits, and is served by the next one."""
    notify = tmp_path / "notify"
    with TokenNode(tmp_path) as tokens, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(notify))
        systemd.setblocking(False)
        tokens.node.daemon.stop()
        with agent(tokens, notify, {}):
            kept = stored(systemd)
        names = {key: f"tokens-{tokens.ports[key]}" for key in TENANTS}
        assert set(kept) == {"tenants", *names.values()}
        address = ("127.0.0.1", tokens.ports["ten-a"])
        taken = {name: kept[name] for name in names.values()}
        waiting = CaseClient(address, tokens.context(), sni=NAME)
        with waiting, agent(tokens, notify, taken):
            close_all(list(kept.values()))
            assert waiting.handshake()
            assert status_of(request(waiting, "GET /pods", tokens.issuers["ten-a"].token())) == 200
            assert status_of(tokens.ask("ten-b", "GET /pods", tokens.issuers["ten-b"].token())) == 200
        close_all(list(stored(systemd).values()))


def test_a_port_that_is_bound_late_is_kept(tmp_path: Path) -> None:
    notify = tmp_path / "notify"
    with TokenNode(tmp_path) as tokens, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(notify))
        systemd.setblocking(False)
        tokens.node.daemon.stop()
        names = {key: f"tokens-{tokens.ports[key]}" for key in TENANTS}
        with contextlib.ExitStack() as stack:
            taken = stack.enter_context(socket.create_server(("127.0.0.1", tokens.ports["ten-a"])))
            stack.enter_context(agent(tokens, notify, {}))
            kept = stored(systemd)
            assert set(kept) == {"tenants", names["ten-b"]}
            taken.close()

            def take_stored() -> set[str]:
                kept.update(stored(systemd))
                return set(kept)

            wait_until(lambda: names["ten-a"] in take_stored(), within_s=DEADLINE_S)
        close_all(list(kept.values()))
