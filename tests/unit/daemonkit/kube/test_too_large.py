# SPDX-License-Identifier: Apache-2.0
import pytest

from daemonkit.kube.resources import PODS
from daemonkit.kube.store import DecodeFailed
from daemonkit.kube.too_large_warnings import BURST, INTERVAL_S, Warnings


def test_who_makes_many_large_objects_does_not_fill_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    warnings = Warnings(PODS, lambda: now)
    failure = [
        DecodeFailed(("ns", f"pod-{number}"), "too large: x", is_too_large=True) for number in range(100)
    ]
    warnings.log([DecodeFailed(("ns", "odd"), "Expected `str`"), *failure])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == BURST
    assert all("object=ns/pod-" in line and "reason=" in line for line in lines)
    now = INTERVAL_S
    warnings.log(failure)
    assert len(capsys.readouterr().err.splitlines()) == 1
