# SPDX-License-Identifier: Apache-2.0
"""A guest is identified by its certificate, through its own socket, while its sandbox lives."""

import json
import shutil
from pathlib import Path

import pytest

from bridge_api.messages import ResultCode
from tests.lab_vm.rules import service
from tests.lab_vm.site import PLANS, VSOCK_PORT, Site

# Nothing here depends on the packet filter.
pytestmark = pytest.mark.kernel("legacy")

REJECTED = "agent connection rejected"
_BY_NAME = {plan.name: plan for plan in PLANS}


def test_a_guest_with_another_guests_certificate_is_refused(site: Site) -> None:
    """a2 and b1 have a vsock device each; b1's certificate comes out of a2's."""
    site.push(list(site.guests), site.ruleset(service("web", "10.96.0.10", "10.0.0.21")))
    thief = site.guests["a2"]
    attached = {name: len(site.log_lines(message="guest attached", sandbox=name)) for name in site.guests}
    thief.share_credentials(site.credentials("b1"))
    thief.kill_agent()
    reason = "the certificate came through the socket of sandbox a2"
    thief.until(lambda: bool(site.log_lines(message=REJECTED, sandbox="b1", reason=reason)), "refused")
    thief.until(lambda: reason in thief.console(), "logged in the guest")
    results = site.push(["a2", "b1"], site.ruleset(service("web", "10.96.0.10", "10.0.0.22")))
    assert {name: result.code for name, result in results.items()} == {
        "a2": ResultCode.UNREACHABLE,
        "b1": ResultCode.APPLIED,
    }
    assert (thief.end("10.96.0.10", 80), site.guests["b1"].end("10.96.0.10", 80)) == (
        "10.0.0.21:8080",
        "10.0.0.22:8080",
    )
    assert len(site.log_lines(message="guest attached", sandbox="b1")) == attached["b1"]
    thief.share_credentials(site.credentials("a2"))
    thief.kill_agent()
    site.wait_attached("a2", attached["a2"] + 1)
    site.wait_current("a2")
    assert thief.end("10.96.0.10", 80) == "10.0.0.22:8080"


def test_a_certificate_ends_with_its_sandbox(site: Site, tmp_path: Path) -> None:
    guest, plan = site.guests["a1"], _BY_NAME["a1"]
    old = tmp_path / "old"
    shutil.copytree(site.credentials("a1"), old)
    attached = len(site.log_lines(message="guest attached", sandbox="a1"))
    site.remove_description(plan)
    guest.until(lambda: not site.credentials("a1").exists(), "revoked")
    guest.until(
        lambda: "the certificate is not that of a running sandbox" in guest.console(), "logged in the guest"
    )
    # A sandbox of the same name is another one: the old leaf stays refused.
    site.describe(plan)
    guest.until((site.credentials("a1") / "tls.key").exists, "given a new certificate")
    refused = len(site.log_lines(message=REJECTED))
    guest.kill_agent()
    guest.until(lambda: len(site.log_lines(message=REJECTED)) > refused, "refused again")
    assert len(site.log_lines(message="guest attached", sandbox="a1")) == attached
    guest.share_credentials(site.credentials("a1"))
    guest.kill_agent()
    site.wait_attached("a1", attached + 1)


def test_over_the_kernels_own_vsock(site: Site) -> None:
    """AF_VSOCK on both sides, in one kernel: the only one of this machine that can loop it back."""
    ended = site.guests["b1"].python("tests.lab_vm.inside.vsock_node", str(VSOCK_PORT + 1))
    assert (ended.status, ended.output) == (0, "vsock iptables\n"), ended.errors
    lines = [json.loads(line) for line in ended.errors.splitlines()]
    refusals = {(line["sandbox"], line["reason"]) for line in lines if line["message"] == REJECTED}
    assert refusals == {("elsewhere", "the certificate came out of the VM with CID 1")}
