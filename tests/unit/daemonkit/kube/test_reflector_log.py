# SPDX-License-Identifier: Apache-2.0
import pytest

from daemonkit.kube.reflector_log import BURST, INTERVAL_S, OversizedObjectLog
from daemonkit.kube.resources import PODS
from daemonkit.kube.store import DecodeFailed


def test_many_large_objects_do_not_fill_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    log = OversizedObjectLog(PODS, lambda: now)
    oversized = [
        DecodeFailed(("ns", f"pod-{number}"), "too large: x", is_too_large=True) for number in range(100)
    ]
    log.log([DecodeFailed(("ns", "odd"), "Expected `str`"), *oversized])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == BURST
    assert all("object=ns/pod-" in line and "reason=" in line for line in lines)
    now = INTERVAL_S
    log.log(oversized)
    assert len(capsys.readouterr().err.splitlines()) == 1
