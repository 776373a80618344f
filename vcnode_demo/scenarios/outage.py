# SPDX-License-Identifier: Apache-2.0
"""Scenario 2: an outage. The super cluster is unreachable when vn-agent crashes; its state is on disk."""

import time

from vcnode_demo.environment import Environment
from vcnode_demo.narrator import Narrator
from vcnode_demo.scenarios.vnagent import LOG, VAULT_LOG, handshake_refused
from vnagent.saved_state import PODS_FILE, TENANTS_FILE


def run(narrator: Narrator, environment: Environment) -> None:
    """All steps, in order. Raises CheckFailedError."""
    narrator.begin_scenario("Scenario 2: an outage")
    crash(narrator, environment)
    recovery(narrator, environment)


def crash(narrator: Narrator, environment: Environment) -> None:
    narrator.step("The super cluster is unreachable; vn-agent is killed with kill -9 and started again")
    narrator.wait_for(lambda: _is_saved(environment), "its state is on disk")
    environment.super_cluster.pause()
    environment.agent.kill()
    began_s = time.monotonic()
    environment.start_agent()
    answer = environment.apiserver_of("acme").get(LOG)
    took_s = time.monotonic() - began_s
    narrator.request("acme", f"GET {LOG}")
    narrator.response(f"{answer.status_line}\n{answer.text}")
    narrator.check(answer.status == 200, f"served again, {took_s:.1f} s after the crash")
    refused = environment.apiserver_of("globex").get(VAULT_LOG)
    # While the source of pods is unreachable, globex's pod may be a new one: unknown is not no.
    narrator.check(refused.status == 503, "globex gets a 503 to retry, and no byte of acme's vault")
    _, body = environment.agent.readyz()
    narrator.request("operator", "GET /readyz")
    narrator.response(body.decode())
    narrator.check(body.count(b"saved state, age") == 2, "it reports saved state, with its age")
    handshake_refused(narrator, environment.apiserver_of("initech"), "initech stays removed")


def _is_saved(environment: Environment) -> bool:
    """Whether both saved states exist, and that of tenants is current."""
    state = environment.directory / "state"
    names = {each.name for each in state.iterdir()}
    if not {TENANTS_FILE, PODS_FILE} <= names:
        return False
    return environment.tenants["initech"].key not in (state / TENANTS_FILE).read_text("utf-8")


def recovery(narrator: Narrator, environment: Environment) -> None:
    narrator.step("The super cluster is reachable again")
    environment.super_cluster.resume()
    narrator.wait_for(
        lambda: not environment.agent.metric("vcnode_vnagent_saved_sources"),
        "vn-agent has synced both of its sources again",
    )
    _, body = environment.agent.readyz()
    narrator.response(body.decode())
    narrator.check(environment.apiserver_of("acme").get(LOG).status == 200, "acme reads its log as before")
