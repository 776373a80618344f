# SPDX-License-Identifier: Apache-2.0
"""Restarts of each daemon under load: nothing is refused, nothing is lost, and streams get their time."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.k8s.ring.api import TlsEndpoint
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.tenants import RingTenant
from tests.systemd import workload
from tests.systemd.site import AGENT_PORT, NODE_ADDRESS, Site

_LOG = b"GET /containerLogs/shop/web-0/main HTTP/1.1\r\nHost: node-1\r\nConnection: close\r\n\r\n"
_CLIENTS = 4
_RESTARTS = 3
_DEADLINE_S = 60.0
_CALLS = 60
# In the guest, while the daemons are away: each call is a new connection to the Service.
_CALL = """
for number in $(seq {calls}); do
    printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} 80 | tail -n 1
    sleep 0.1
done
"""


class LogLoad:
    """Clients that ask vn-agent for a log in turn, each time over a new connection."""

    def __init__(self, endpoint: TlsEndpoint) -> None:
        self._endpoint = endpoint
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self.answered = 0
        self.failures: list[str] = []

    def run(self) -> None:
        """Until `stop`; failures are collected."""
        while not self._is_over.is_set():
            try:
                reply = self._endpoint.exchange(_LOG)
                is_good = reply.startswith(b"HTTP/1.1 200 ") and b"web-0 serves" in reply
                failure = "" if is_good else reply[:200].decode(errors="replace")
            except (OSError, AssertionError) as error:
                failure = repr(error)
            with self._lock:
                self.answered += not failure
                if failure:
                    self.failures.append(failure)

    def stop(self) -> None:
        """End all clients after their request."""
        self._is_over.set()

    def wait_for_more(self, count: int) -> None:
        """Until so many more requests are answered. Raises `RingError`."""
        target = self.answered + count
        wait_for(f"{count} answers", lambda: self.answered >= target, timeout_s=_DEADLINE_S)


def check(site: Site, tenant: RingTenant) -> Iterator[str]:
    """A line for each thing that held. Raises `RingError` or `AssertionError`."""
    yield _restart_agent(site, tenant)
    yield _restart_services(site, tenant)


@contextmanager
def log_load(site: Site, tenant: RingTenant) -> Iterator[LogLoad]:
    """Load until the end of the block; then no request may have failed. Raises `AssertionError`."""
    authority = (site.desk / "authorities/serving-ca.crt").read_bytes()
    client = tenant.client
    load = LogLoad(TlsEndpoint(site.control, NODE_ADDRESS, AGENT_PORT, authority, client))
    threads = [threading.Thread(target=load.run) for _ in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        load.wait_for_more(20)
        yield load
        load.wait_for_more(20)
    finally:
        load.stop()
        for thread in threads:
            thread.join()
    assert not load.failures, (len(load.failures), load.answered, load.failures[:3])


def _restart_agent(site: Site, tenant: RingTenant) -> str:
    with log_load(site, tenant) as load, _Stream(tenant) as stream:
        stream.echo("before")
        pids = {_main_pid(site, "vn-agent")}
        for _ in range(_RESTARTS):
            site.booted.run("systemctl restart vn-agent")
            pids.add(_main_pid(site, "vn-agent"))
            load.wait_for_more(20)
        # Of the first process: it still finishes its stream.
        stream.echo("after")
        assert len(pids) == _RESTARTS + 1, pids
    return (
        f"vn-agent: {_RESTARTS} restarts, {load.answered} requests over new connections, none refused or"
        " lost; an exec of the first process went on"
    )


def _restart_services(site: Site, tenant: RingTenant) -> str:
    address = workload.service_address(site, tenant)
    script = _CALL.format(calls=_CALLS, address=address)
    calls = tenant.kubectl.start("exec", "client", "-c", "main", "--", "sh", "-c", script)
    for daemon in ("kata-bridge", "kubeproxy-ext", "dnsconfig"):
        site.booted.run(f"systemctl restart {daemon}")
    workload.start_guest(site, tenant, "client-2", "exec sleep 100000")
    out, err = calls.communicate(timeout=_DEADLINE_S)
    pages = out.decode().splitlines()
    assert pages == [workload.PAGE] * _CALLS, (len(pages), pages[-1:], err)
    # What the gate let start after the restarts has its rules, too.
    script = _CALL.format(calls=1, address=address)
    again = tenant.kubectl("exec", "client-2", "-c", "main", "--", "sh", "-c", script)
    assert again.check().text.split("\n")[0] == workload.PAGE, again
    return (
        f"kata-bridge, kubeproxy-ext, dnsconfig: restarted while a guest made {_CALLS} connections to a"
        " Service, none lost; a guest that started meanwhile has its rules"
    )


def _main_pid(site: Site, unit: str) -> str:
    return site.booted.run(f"systemctl show --property=MainPID --value {unit}").strip()


class _Stream:
    """`kubectl exec` of a program that echoes."""

    def __init__(self, tenant: RingTenant) -> None:
        self._process = tenant.kubectl.start(
            "exec", "--stdin", "web-0", "-c", "main", "--", "cat", stdin=subprocess.PIPE
        )

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def echo(self, text: str) -> None:
        """Send a line and read it back. Raises `RingError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{text}\n".encode())
        self._process.stdin.flush()
        line = self._process.stdout.readline().decode().strip()
        if line != text:
            self._process.kill()
            raise RingError(f"exec: {line!r} in place of {text!r}: {self._process.communicate()[1]!r}")
