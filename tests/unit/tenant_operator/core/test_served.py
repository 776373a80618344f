# SPDX-License-Identifier: Apache-2.0
"""Condition CertificatesValid is of the certificates in use."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.plan import TenantPlan
from tenant_operator.core.probes import ServedProbe
from tenant_operator.model import names
from tenant_operator.model.objects import Ref
from tenant_operator.pki.facts import der_of
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster


class ServingWorld(FakeWorld):
    """Two API servers show what their pods have read."""

    shown: dict[str, bytes]
    questions: list[float]

    def secret(self) -> bytes:
        key = self.cluster["status"]["clusterNamespace"]
        text = self.objects[Ref("Secret", key, names.API_SERVER_SERVING)]["data"]["tls.crt"]
        return der_of(base64.b64decode(text))

    def finish(self, made: TenantPlan) -> bool:
        found = super().finish(made)
        for probe in made.probes:
            if isinstance(probe, ServedProbe):
                self.questions.append(self.now_s)
                facts = {pod: base64.b64encode(der).decode() for pod, der in self.shown.items()}
                found |= facts != dict(self.probes[probe.name].facts)
                self.probes[probe.name] = ProbeResult(is_ok=True, at=self.now_s, facts=facts)
        return found

    def condition(self) -> Any:
        conditions = self.cluster["status"]["conditions"]
        return next(each for each in conditions if each["type"] == "CertificatesValid")


def serving() -> ServingWorld:
    world = ServingWorld(virtual_cluster())
    world.shown, world.questions = {}, []
    world.run()
    world.shown = {"apiserver-1": world.secret(), "apiserver-2": world.secret()}
    return world


def renew(world: ServingWorld) -> None:
    """By a person's request: its Secret has another certificate, which pods have not read."""
    annotations = world.cluster["metadata"].setdefault("annotations", {})
    annotations["vcnode.io/rotate-certificates"] = "one"
    before = world.secret()
    world.run()
    assert world.secret() != before


def test_each_server_is_asked_daily() -> None:
    world = serving()
    world.run()
    for _ in range(4 * 24):
        world.now_s += 3600
        world.run()
    assert len(world.questions) == 5
    assert world.condition()["status"] == "True"


def test_old_certificate_in_use_is_a_condition() -> None:
    world = serving()
    world.now_s += 86400
    world.run()
    renew(world)
    world.shown["apiserver-1"] = world.secret()
    count = len(world.questions)
    for _ in range(11):
        world.now_s += 300
        world.run()
    assert len(world.questions) - count == 11
    assert world.condition()["status"] == "True"
    world.now_s += 300
    world.run()
    found = world.condition()
    assert (found["status"], found["reason"]) == ("False", "OldCertificateInUse")
    assert found["message"].startswith("apiserver-serving/apiserver-2 serves the certificate of ")
    world.shown["apiserver-2"] = world.secret()
    world.now_s += 300
    world.run()
    assert world.condition()["status"] == "True"
    # Once all show it, a day passes.
    count = len(world.questions)
    for _ in range(12):
        world.now_s += 300
        world.run()
    assert len(world.questions) == count


@pytest.mark.parametrize("text", ["", "!", "bm8gY2VydGlmaWNhdGU="])
def test_what_is_no_certificate_shows_nothing(text: str) -> None:
    world = serving()
    world.run()
    known = world.probes["served"]
    world.probes["served"] = msgspec.structs.replace(known, facts={"apiserver-1": text})
    world.run()
    assert world.condition()["status"] == "True"
