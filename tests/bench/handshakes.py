# SPDX-License-Identifier: Apache-2.0
"""A tenant's latency while another attacks vn-agent's handshakes: `python -m tests.bench.handshakes`.

Prints the neighbour's latency, quiet and under each attack, and the ratio of its p99. The attacker is a
process of its own, at the rates at which the attacks once worked; the goal is 1.3x. It needs a quiet machine.
"""

import argparse
import contextlib
import itertools
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from devkit.pki import Authority, Leaf
from tests.functional.vnagent import attacks
from tests.functional.vnagent.node import NAME, SPDY, AgentNode, head, received, reply_of
from tests.functional.vnagent.shop_and_bank import BANK, SHOP

_ECHO = "POST /exec/web/bank/app?command=cat&input=1&output=1"
# An interactive shell's echoes and an apiserver's dials: far apart, so that the neighbour itself is no load.
_EVERY_S, _DIAL_EVERY_S = 0.004, 0.05
# The attacker's process starts and reaches its rate in less.
_SETTLE_S = 2.0


def _chains(port: int, directory: Path, rate: float) -> None:
    """A tenant's CA: chains of RSA with long exponents, within the bytes that are taken."""
    _present(port, directory, "slow.pem", rate)


def _large(port: int, directory: Path, rate: float) -> None:
    """The same with as many intermediates as OpenSSL takes."""
    _present(port, directory, "large.pem", rate)


def _costly(port: int, directory: Path, rate: float) -> None:
    """The same with chains that cost as much as any that are checked."""
    _present(port, directory, "costly.pem", rate)


def _present(port: int, directory: Path, name: str, rate: float) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(directory / name)
    for _ in _paced(rate):
        with (
            contextlib.suppress(OSError),
            attacks.dial(port, "127.0.0.99") as plain,
            context.wrap_socket(plain, server_hostname=NAME) as tls,
        ):
            tls.settimeout(0.05)
            tls.recv(1)


def _hellos(port: int, _: Path, rate: float) -> None:
    """No credential: a hello, and never a second flight, from 64 addresses."""
    _open(port, rate, [f"127.0.1.{number}" for number in range(1, 65)], attacks.client_hello())


def _silent(port: int, _: Path, rate: float) -> None:
    """No credential: silent connections from one address."""
    _open(port, rate, ["127.0.0.66"], b"")


def _open(port: int, rate: float, sources: list[str], first: bytes) -> None:
    open_sockets = []
    for source, _ in zip(itertools.cycle(sources), _paced(rate), strict=False):
        with contextlib.suppress(OSError):
            open_sockets.append(attacks.dial(port, source))
            if first:
                open_sockets[-1].sendall(first)
        if len(open_sockets) > 6_000:
            open_sockets.pop(0).close()


def _paced(rate: float) -> Iterator[int]:
    begin = time.monotonic()
    for number in itertools.count():
        left_s = begin + number / rate - time.monotonic()
        time.sleep(max(0.0, left_s))  # the rate is part of the attack
        yield number


ATTACKS: dict[str, tuple[Callable[[int, Path, float], None], float]] = {
    "chains": (_chains, 20.0),
    "costly": (_costly, 20.0),
    "large": (_large, 10.0),
    "hellos": (_hellos, 300.0),
    "silent": (_silent, 1_000.0),
}


def main() -> int:
    arguments = _arguments()
    if arguments.attack_port:
        _attack(arguments.only[0], arguments.attack_port, Path(arguments.directory))
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="vcnode-bench-") as scratch,
        AgentNode(Path(scratch) / "n", ["ten-a", "ten-b"], [SHOP, BANK]) as node,
    ):
        write_chains(node.tenants["ten-a"].authority, node.directory)
        quiet = _measure(node, arguments.seconds)
        _print("quiet", quiet, quiet)
        for name in arguments.only:
            with _attacker(name, node):
                _print(name, _measure(node, arguments.seconds), quiet)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.handshakes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(ATTACKS), metavar="ATTACKS")
    parser.add_argument("--attack-port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--directory", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def _attack(name: str, port: int, directory: Path) -> None:
    attacks.raise_descriptor_limit()
    run, rate = ATTACKS[name]
    run(port, directory, rate)


@contextlib.contextmanager
def _attacker(name: str, node: AgentNode) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.bench.handshakes", "--only", name]
    command += ["--attack-port", str(node.daemon.port), "--directory", str(node.directory)]
    process = subprocess.Popen(command)
    try:
        # Otherwise only its first connections would be measured.
        time.sleep(_SETTLE_S)  # no event reports that the attack is under way
        yield
    finally:
        process.terminate()
        process.wait()


def write_chains(authority: Authority, directory: Path) -> None:
    """The chains of the attacks, as `slow.pem`, `costly.pem` and `large.pem`."""
    stray: Leaf = authority.issue("stray")  # its key is not registered: the authority's signature is enough
    for name, chain in (
        ("slow.pem", attacks.slow_chain(authority, stray.key, 7)),
        ("costly.pem", attacks.costly_chain(authority, stray.key)),
        ("large.pem", attacks.slow_chain(authority, stray.key, 70)),
    ):
        (directory / name).write_bytes(chain + stray.key_pem)


def _measure(node: AgentNode, seconds: float) -> dict[str, list[float]]:
    """Latencies in ms of a stream's echo, and of a request on a new connection."""
    end_s = time.monotonic() + seconds
    dials: list[float] = []

    def dial() -> None:
        while time.monotonic() < end_s:
            begin = time.monotonic()
            with node.client("ten-b") as client:
                client.send(head("GET /healthz"))
                if reply_of(client) is None:
                    continue
            dials.append((time.monotonic() - begin) * 1000)
            time.sleep(_DIAL_EVERY_S)  # pace: the neighbour's own rate, so that samples cover the whole slice

    dialler = threading.Thread(target=dial)
    echoes: list[float] = []
    with node.client("ten-b") as client:
        client.send(head(_ECHO, *SPDY))
        received(client, BANK.marker.encode())
        dialler.start()
        number = 0
        while time.monotonic() < end_s:
            number += 1
            data = f"<{number}>".encode()
            begin = time.monotonic()
            client.received.clear()
            client.send(data)
            received(client, data)
            echoes.append((time.monotonic() - begin) * 1000)
            time.sleep(_EVERY_S)  # pace: without it the echo alone would keep vn-agent busy
    dialler.join()
    return {"echo": echoes, "new connection": dials}


def _print(name: str, found: dict[str, list[float]], quiet: dict[str, list[float]]) -> None:
    for what, values in found.items():
        p50, p99, before = (
            _quantile(each, q) for each, q in ((values, 0.5), (values, 0.99), (quiet[what], 0.99))
        )
        sys.stdout.write(
            f"{name:8} {what:15} p50 {p50:8.2f} ms  p99 {p99:8.2f} ms  max {max(values):8.2f} ms"
            f"  p99 against quiet {p99 / before:5.2f}  ({len(values)})\n"
        )
    sys.stdout.flush()


def _quantile(values: list[float], q: float) -> float:
    return sorted(values)[int(q * (len(values) - 1))]


if __name__ == "__main__":
    sys.exit(main())
