# SPDX-License-Identifier: Apache-2.0
"""Findings about the daemons themselves: whether they run, are ready, fit together, and serve all."""

import re
from collections.abc import Iterator

from vcnode.core.doctor_facts import DaemonAnswer, DoctorFacts, DoctorGuest, DoctorPage
from vcnode.core.findings import Finding, failed, warning
from vcnode.core.status_report import unready_lines
from vcnode.terminal import duration

# Starting guests are unreachable until their agent attaches.
GUEST_BEHIND_S = 60.0
# The first with ValidateContainerAdjustment (NRI 0.10): before, a container starts if the gate is too late.
GATE_RUNTIME = (2, 2)
_MAX_GUESTS = 8
_VERSION = re.compile(r"v?(\d{1,5})\.(\d{1,5})")


def findings(facts: DoctorFacts) -> Iterator[Finding]:
    """Those of all daemons that have a configuration here."""
    for answer in facts.daemons:
        yield from _life(answer)
        if answer.version and answer.version != facts.version:
            message = f"{answer.daemon} runs version {answer.version}; {facts.version} is installed"
            yield warning("version", message, f"systemctl restart {answer.daemon}")
        if answer.page is not None:
            yield from _tenants(answer.daemon, answer.page)
            yield from _guests(answer.page, facts.version)
            yield from _runtime(answer.page)


def _life(answer: DaemonAnswer) -> Iterator[Finding]:
    if answer.problem:
        message = f"{answer.daemon} does not answer at {answer.where}: {answer.problem}"
        remedy = f"systemctl status {answer.daemon}; journalctl -u {answer.daemon}"
        yield failed("daemon", message, remedy)
    elif not answer.is_ready:
        why = "; ".join(unready_lines(answer.why))
        remedy = f"as the lines advise; journalctl -u {answer.daemon}"
        yield failed("readiness", f"{answer.daemon} is not ready: {why}", remedy)


def _tenants(daemon: str, page: DoctorPage) -> Iterator[Finding]:
    for bad in page.bad_tenants:
        kept = "its last good state is served" if bad.keeps_last_good_state else "it is not served"
        name = f" (tenant {bad.tenant})" if bad.tenant else ""
        message = f"{daemon}: {bad.source}{name}: {bad.reason}; {kept}"
        yield failed("tenant", message, "repair or remove it; `vcnode tenant list` shows all")


def _guests(page: DoctorPage, version: str) -> Iterator[Finding]:
    if page.daemon != "kata-bridge" or not isinstance(page.guests, tuple):
        return
    wrong = [each for each in page.guests if each.state == "notInjectable" or _is_behind(each)]
    for guest in wrong[:_MAX_GUESTS]:
        if guest.state == "notInjectable":
            remedy = "give it a policy that allows iptables calls, or set stock.policyFile (docs/guests.md)"
            yield failed("guest", f"{_name(guest)}: takes no rules: {guest.message}", remedy)
        else:
            since = duration(guest.behind_seconds or 0.0)
            message = f"{_name(guest)}: {guest.state} for {since}: {guest.message or 'no reason given'}"
            yield failed("guest", message, "`vcnode guests`; see the log of the guest's agent")
    if len(wrong) > _MAX_GUESTS:
        yield failed("guest", f"{len(wrong) - _MAX_GUESTS} more guests lack rules", "`vcnode guests`")
    for guest in page.guests:
        # Of other channels the version is that of another program.
        if guest.channel == "agent" and guest.version and _release(guest.version) != _release(version):
            message = f"{_name(guest)}: its agent has version {guest.version}, kata-bridge {version}"
            yield warning("version", message, "build the guest's image or sidecar with this release")


def _is_behind(guest: DoctorGuest) -> bool:
    return (guest.behind_seconds or 0.0) > GUEST_BEHIND_S and guest.state in (
        "unreachable",
        "behind",
        "refused",
    )


def _runtime(page: DoctorPage) -> Iterator[Finding]:
    found = _release(page.runtime.partition(" ")[2])
    if page.start_gate is None or not page.runtime.startswith("containerd ") or found is None:
        return
    if found < GATE_RUNTIME:
        needed = ".".join(map(str, GATE_RUNTIME))
        message = f"{page.runtime}: a container starts if the start gate answers too late; {needed} denies it"
        yield warning("version", message, f"upgrade containerd to {needed} or newer")


def _release(text: str) -> tuple[int, int] | None:
    found = _VERSION.match(text)
    return None if found is None else (int(found[1]), int(found[2]))


def _name(guest: DoctorGuest) -> str:
    return f"guest {guest.tenant_pod} of {guest.tenant}" if guest.tenant_pod else f"guest {guest.pod}"
