# SPDX-License-Identifier: Apache-2.0
"""From a cause at a hop to what an operator does about it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.remedies import MAX_ERROR_CHARACTERS, Cause, Hop, HopKind, cause_of_status, one_line

SUPER = Hop(HopKind.API_SERVER, "super cluster", "superCluster.kubeconfigFile", "packaging/rbac/x.yaml")
URL = "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        (Cause.REFUSED, "check that the API server runs, and `server` in superCluster.kubeconfigFile"),
        (
            Cause.UNTRUSTED,
            "give superCluster.kubeconfigFile the certificate-authority that issued the API server's"
            " certificate",
        ),
        (Cause.FORBIDDEN, "apply packaging/rbac/x.yaml, bound to the user of superCluster.kubeconfigFile"),
        (Cause.TIMEOUT, "check the load of the peer, and routes and firewalls from this node"),
        (Cause.OTHER, "see this daemon's log"),
    ],
)
def test_a_fault_has_hop_error_and_remedy(cause: Cause, remedy: str) -> None:
    fault = SUPER.fault(cause, "it failed", URL)
    assert fault.text == "super cluster https://10.0.0.1:6443: it failed"
    assert fault.failure_document(5.0004) == {
        "message": "super cluster https://10.0.0.1:6443: it failed",
        "seconds": 5.0,
        "hop": "super cluster https://10.0.0.1:6443",
        "reason": cause.value,
        "error": "it failed",
        "remedy": remedy,
    }


def test_without_an_address_the_hop_is_its_name() -> None:
    assert SUPER.fault(Cause.CONFIGURATION, "").text == "super cluster: no reason given"


@pytest.mark.parametrize("kind", HopKind)
@pytest.mark.parametrize("cause", Cause)
def test_every_cause_at_every_hop_has_a_remedy(kind: HopKind, cause: Cause) -> None:
    remedy = Hop(kind, "x", "SETTING", "RIGHTS").fault(cause, "e").remedy
    assert remedy
    assert "{" not in remedy


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\nlines\r\n\tand a tab", "two lines and a tab"),
        ("\x1b[31mred", "[31mred"),
        ("x" * 400, "x" * MAX_ERROR_CHARACTERS + "..."),
        ("caf\u00e9\u2028", "caf\u00e9"),
    ],
)
def test_a_text_of_a_peer_is_one_bounded_line(text: str, line: str) -> None:
    assert one_line(text) == line


@given(st.text(max_size=500))
def test_no_text_breaks_the_line(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert len(line) <= MAX_ERROR_CHARACTERS + 3


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (401, Cause.UNAUTHENTICATED),
        (403, Cause.FORBIDDEN),
        (404, Cause.ABSENT),
        (429, Cause.OVERLOADED),
        (503, Cause.OVERLOADED),
        (410, Cause.OTHER),
    ],
)
def test_a_refusal_has_a_cause(code: int, cause: Cause) -> None:
    assert cause_of_status(code) is cause
