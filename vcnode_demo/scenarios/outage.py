# SPDX-License-Identifier: Apache-2.0
"""Act two: a bad day. The super cluster is away when vn-agent crashes; what it knew is on disk."""

import time

from vcnode_demo.environment import Stage
from vcnode_demo.narrator import Story
from vcnode_demo.scenarios.vnagent import LOG, VAULT_LOG, handshake_refused
from vnagent.saved_state import PODS_FILE, TENANTS_FILE

_SAVED = 'vcnode_vnagent_source_is_saved_state{source="%s"}'
_SOURCES = ("pods", "tenants")


def play(story: Story, stage: Stage) -> None:
    """All steps. Raises NotAsToldError at the first that is not as told."""
    story.act("Act 2: a bad day")
    crash(story, stage)
    recovery(story, stage)


def crash(story: Story, stage: Stage) -> None:
    story.step("The super cluster is away, and vn-agent is killed with kill -9 and started again")
    story.wait(lambda: _is_saved(stage), "what it knows is on disk")
    stage.super_cluster.pause()
    stage.agent.kill()
    began_s = time.monotonic()
    stage.start_agent()
    answer = stage.apiserver_of("acme").get(LOG)
    took_s = time.monotonic() - began_s
    story.asked("acme", f"GET {LOG}")
    story.came(f"{answer.status_line}\n{answer.text}")
    story.check(answer.status == 200, f"served again, {took_s:.1f} s after the crash")
    refused = stage.apiserver_of("globex").get(VAULT_LOG)
    # While the node's pods cannot be read, a pod that globex names may be a new one: unknown is not no.
    story.check(refused.status == 503, "globex gets nothing of acme's vault, and is told to ask again")
    _, body = stage.agent.readyz()
    story.asked("operator", "GET /readyz")
    story.came(body.decode())
    story.check(body.count(b"saved state, age") == 2, "it says that it serves saved state, and how old it is")
    handshake_refused(story, stage.apiserver_of("initech"), "initech stays removed")


def _is_saved(stage: Stage) -> bool:
    """Whether both saved states are there, and that of tenants is as of now."""
    state = stage.directory / "state"
    names = {each.name for each in state.iterdir()}
    if not {TENANTS_FILE, PODS_FILE} <= names:
        return False
    return stage.tenants["initech"].key not in (state / TENANTS_FILE).read_text("utf-8")


def recovery(story: Story, stage: Stage) -> None:
    story.step("The super cluster is back")
    stage.super_cluster.resume()
    story.wait(
        lambda: not any(stage.agent.metric(_SAVED % source) for source in _SOURCES),
        "vn-agent has heard both of its sources again",
    )
    _, body = stage.agent.readyz()
    story.came(body.decode())
    story.check(stage.apiserver_of("acme").get(LOG).status == 200, "acme reads its log, as ever")
