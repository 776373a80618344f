# SPDX-License-Identifier: Apache-2.0
"""The agent's cost in a guest: start time, memory, time to apply."""

import datetime as dt
import time

from ruleset.delta import difference
from tests.lab_vm.rules import service
from tests.lab_vm.site import Site

# Ten times what is expected on a machine that does nothing else.
_MAX_START_S = 15.0
_MAX_RSS_KB = 64 << 10
_SERVICES = 100


def test_memory_of_the_agent(site: Site) -> None:
    for name, guest in site.guests.items():
        attached = [
            dt.datetime.fromisoformat(line["time"]).timestamp()
            for line in site.log_lines(message="guest attached", sandbox=name)
        ]
        pid = guest.agent_pid()
        uptime, stat, status = (
            guest.output("cat", path) for path in ("/proc/uptime", f"/proc/{pid}/stat", f"/proc/{pid}/status")
        )
        # proc(5): the 22nd field is the start, in hundredths of a second of uptime.
        age_s = float(uptime.split()[0]) - int(stat.rpartition(")")[2].split()[19]) / 100
        # The last is this process's, the first one the first kernel's.
        start_s = attached[-1] - (time.time() - age_s)
        boot_s = attached[0] - guest.started_at
        sizes = dict(line.split(":") for line in status.splitlines())
        fresh_kb = int(sizes["VmRSS"].split()[0])
        assert fresh_kb < _MAX_RSS_KB
        assert 0 < start_s < _MAX_START_S
        site.figure(
            f"{name}: power on to agent at the node {boot_s:.1f} s, of which the agent {start_s:.1f} s;"
            f" agent RSS {fresh_kb / 1024:.1f} MiB"
        )


def test_how_long_rules_take(site: Site) -> None:
    services = [
        service(f"s{number:03}", f"10.96.1.{number}", "10.0.0.21", "10.0.0.22") for number in range(_SERVICES)
    ]
    first = site.ruleset(*services)
    site.push(list(site.guests), first)
    second = site.ruleset(*services[1:], service("s000", "10.96.1.0", "10.0.0.22"))
    delta = difference(first, second)
    assert delta is not None
    site.push(list(site.guests), delta)
    for name, guest in site.guests.items():
        full, change = site.log_lines(message="ruleset applied", guest=name)[-2:]
        assert (full["kind"], change["kind"]) == ("full", "delta")
        assert guest.end("10.96.1.99", 80).endswith(":8080")
        assert guest.end("10.96.1.0", 80) == "10.0.0.22:8080"
        site.figure(f"{name}: {_SERVICES} Services x 2 in {full['ms']} ms, one endpoint in {change['ms']} ms")
