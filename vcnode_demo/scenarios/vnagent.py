# SPDX-License-Identifier: Apache-2.0
"""Act one: vn-agent. What a tenant can do with its pods, what nobody else can, and what is left of it.

`play` is the whole act in order; each step is a function that stands by itself on an open stage.
"""

import json
from typing import Any

from vcnode.core import status_report
from vcnode.terminal import columns
from vcnode_demo.caller import Answer, Caller, RefusedError
from vcnode_demo.environment import Stage
from vcnode_demo.narrator import Story

LOG = "/containerLogs/web/shop/app"
EXEC = "/exec/web/shop/app?command=sh&input=1&output=1"
FORWARD = "/portForward/web/shop"
VAULT_LOG = "/containerLogs/web/vault/app"
VAULT_EXEC = "/exec/web/vault/app?command=sh&input=1&output=1"
# A removed tenant's live connections end within this time, says the design.
CUT_S = 5.0


def play(story: Story, stage: Stage) -> None:
    """All steps. Raises NotAsToldError at the first that is not as told."""
    story.act("Act 1: vn-agent, the kubelet that tenants see")
    logs(story, stage)
    follow(story, stage)
    execute(story, stage)
    forward(story, stage)
    pages(story, stage)
    other_tenant(story, stage)
    wrong_certificates(story, stage)
    metrics_client(story, stage)
    removed_tenant(story, stage)
    audit(story, stage)
    metrics(story, stage)
    status(story, stage)


def logs(story: Story, stage: Stage) -> None:
    story.step("Each tenant reads the log of its pod web/shop: the same words, each gets its own")
    for name in ("acme", "globex"):
        answer = _get(story, stage.apiserver_of(name), LOG)
        pod = stage.pods[f"{name} web/shop"]
        story.check(answer.status == 200 and pod.marker in answer.text, f"it is {name}'s log")
        asked = stage.kubelet.requests(f"/containerLogs/{pod.namespace}/shop/app")
        story.check(len(asked) == 1, f"the kubelet was asked for {pod.namespace}/shop, its name on the node")


def follow(story: Story, stage: Stage) -> None:
    story.step("As by kubectl logs -f: a line arrives while the log is open")
    pod = stage.pods["acme web/shop"]
    caller = stage.apiserver_of("acme")
    story.asked(caller.name, f"GET {LOG}?follow=true&tailLines=0")
    with caller.open("GET", f"{LOG}?follow=true&tailLines=0") as conversation:
        story.came(conversation.head.status_line)
        stage.kubelet.append_log(pod.namespace, pod.name, "app", "acme's shop sold an anvil")
        line = next(conversation.chunks()).decode()
        story.came(line)
        story.check("sold an anvil" in line, "the line came while the request was open")
    upstream = stage.kubelet.requests(f"/containerLogs/{pod.namespace}/shop/app")[-1]
    story.wait(lambda: upstream.ended_s is not None, "the reader left, and the kubelet's side ended too")


def execute(story: Story, stage: Stage) -> None:
    story.step("As by kubectl exec -it: an upgraded stream, bytes both ways")
    pod = stage.pods["acme web/shop"]
    caller = stage.apiserver_of("acme")
    story.asked(caller.name, f"POST {EXEC}   Upgrade: SPDY/3.1")
    with caller.upgrade(EXEC) as stream:
        story.came(stream.head.status_line)
        story.check(stream.head.status == 101, "the protocol was switched")
        for line in ("hostname", "cat /etc/owner"):
            story.asked(caller.name, line)
            stream.send(f"{line}\n".encode())
            said = stream.until(b"\n")
            story.came(said)
        story.check(pod.marker in said, "it is the shell of acme's pod")
    story.say("(A container runtime speaks SPDY frames here; vn-agent reads them as little as these.)")


def forward(story: Story, stage: Stage) -> None:
    story.step("As by kubectl port-forward: an HTTP request to the pod, through the stream")
    pod = stage.pods["acme web/shop"]
    caller = stage.apiserver_of("acme")
    story.asked(caller.name, f"POST {FORWARD}   Upgrade: SPDY/3.1")
    with caller.upgrade(FORWARD) as stream:
        story.came(stream.head.status_line)
        story.check(stream.head.status == 101, "the protocol was switched")
        story.asked(caller.name, "GET / HTTP/1.1")
        stream.send(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
        head, body = stream.until(b"\r\n\r\n"), stream.until(b"\n")
        story.came(f"{head.splitlines()[0]}\n{body}")
        story.check(pod.marker in body, "acme's own web server answered")


def pages(story: Story, stage: Stage) -> None:
    story.step("The node's list of pods, as each tenant sees it")
    every = stage.pods.values()
    story.say(f"on the node: {', '.join(f'{pod.namespace}/{pod.name}' for pod in every)}")
    rows = [("", "GET /pods", "GET /stats/summary")]
    for name in ("acme", "globex"):
        caller = stage.apiserver_of(name)
        listed, summed = caller.get("/pods"), caller.get("/stats/summary")
        rows.append((name, _names(json.loads(listed.body)["items"], "metadata"), _pods_of(summed)))
        others = [pod for key, pod in stage.pods.items() if not key.startswith(f"{name} ")]
        leaked = [
            word
            for pod in others
            for word in (pod.marker, pod.uid, pod.namespace)
            if word in listed.text or word in summed.text
        ]
        story.check(not leaked, f"{name} finds no name, uid or content of anybody else")
    story.came("\n".join(columns(rows)))
    story.check(rows[1][1] == "web/shop, web/vault", "acme sees its two pods under its own names")
    story.check(rows[2][1] == "web/shop", "globex sees its one pod")


def other_tenant(story: Story, stage: Stage) -> None:
    story.step("globex tries acme's pod web/vault, which it knows by name")
    globex = stage.apiserver_of("globex")
    before = len(stage.kubelet.exchanges)
    foreign = _get(story, globex, VAULT_LOG)
    missing = _get(story, globex, "/containerLogs/web/no-such-pod/app")
    story.check(foreign.status == 404, "refused")
    story.check(
        foreign.comparable == missing.comparable,
        "byte for byte what a pod that does not exist answers (but for the request's id)",
    )
    super_name = f"/containerLogs/{stage.pods['acme web/vault'].namespace}/vault/app"
    guessed = _get(story, globex, super_name)
    story.check(guessed.comparable == missing.comparable, "the same for its name on the node")
    streams = [
        _upgrade_refused(story, globex, path) for path in (VAULT_EXEC, VAULT_EXEC.replace("vault", "no"))
    ]
    story.check(streams[0].comparable == streams[1].comparable, "the same for exec")
    story.check(len(stage.kubelet.exchanges) == before, "the kubelet was not asked at all")
    own = stage.apiserver_of("acme").get(VAULT_LOG)
    story.check(own.status == 200, "acme itself reads it")


def wrong_certificates(story: Story, stage: Stage) -> None:
    acme, globex = stage.tenants["acme"], stage.tenants["globex"]
    before = len(stage.kubelet.exchanges)
    story.step("A certificate that was stolen or minted: of the right authority, yet not the apiserver's")
    admin = stage.caller("acme's admin", acme.admin)
    answer = _get(story, admin, LOG)
    story.check(
        answer.status == 403,
        "refused: acme's authority issued it, but only the apiserver's own key is registered",
    )
    minted = globex.authority.issue("acme", usages=("client", "server"))
    answer = _get(story, stage.caller("globex as 'acme'", minted), LOG)
    story.check(answer.status == 403, "refused: a name in a certificate proves nothing")
    story.step("Certificates of nobody we know do not get through the handshake")
    unknown = type(acme.authority).create("kubernetes").issue("acme", usages=("client",))
    handshake_refused(story, stage.caller("a stranger", unknown), "a stranger's authority of the same name")
    handshake_refused(story, stage.caller("nobody", None), "no certificate")
    story.check(len(stage.kubelet.exchanges) == before, "the kubelet was not asked at all")


def metrics_client(story: Story, stage: Stage) -> None:
    story.step("acme's metrics-server has a certificate for pages, and for nothing else")
    client = stage.caller("acme's metrics-server", stage.tenants["acme"].metrics)
    answer = client.get("/metrics/resource")
    story.asked(client.name, "GET /metrics/resource")
    rows = [
        line for line in answer.text.splitlines() if line.startswith("container_memory_working_set_bytes{")
    ]
    story.came("\n".join([answer.status_line, *rows]))
    story.check(answer.status == 200 and len(rows) == 2, "a row for each of acme's containers, and no others")
    refused = _upgrade_refused(story, client, EXEC)
    story.check(refused.status == 403, "no exec for it")


def removed_tenant(story: Story, stage: Stage) -> None:
    story.step("initech's VirtualCluster is deleted while it has a shell open")
    initech, globex = stage.apiserver_of("initech"), stage.apiserver_of("globex")
    with initech.upgrade(EXEC) as theirs, globex.upgrade(EXEC) as others:
        theirs.send(b"hostname\n")
        story.asked(initech.name, "hostname")
        story.came(theirs.until(b"\n"))
        stage.super_cluster.remove_tenant("initech")
        story.say("(the super cluster has no VirtualCluster initech any more)")
        story.check(theirs.is_cut(CUT_S), f"its live stream was cut within {CUT_S:.0f} s")
        others.send(b"hostname\n")
        story.check(others.until(b"\n") == "shop\n", "globex's stream, opened beside it, goes on")
    handshake_refused(story, initech, "a tenant that is gone")


def audit(story: Story, stage: Stage) -> None:
    story.step("What the audit log says of all this: one line a decision, nothing else of the request")
    expected = {"time", "tenant", "identity", "endpoint", "namespace", "pod", "container", "decision"}
    expected |= {"reason", "status", "requestId"}
    story.wait(
        lambda: _requests_counted(stage) == len(stage.agent.audit()), "there is a line for every decision"
    )
    lines = stage.agent.audit()
    rows = [("TENANT", "ENDPOINT", "POD", "DECISION", "STATUS", "REASON")]
    short = {tenant.key: tenant.name for tenant in stage.tenants.values()}
    for line in lines:
        pod = f"{line['namespace']}/{line['pod']}" if line["pod"] else "-"
        tenant = short.get(line["tenant"], "-")
        rows.append((tenant, line["endpoint"], pod, line["decision"], str(line["status"]), line["reason"]))
    story.came("\n".join(columns(rows)))
    story.check(all(set(line) == expected for line in lines), "each has the same fields, no more")
    attempts = [
        line
        for line in lines
        if (short.get(line["tenant"]), line["pod"], line["decision"]) == ("globex", "vault", "deny")
    ]
    story.check(len(attempts) >= 2, "globex's attempts at web/vault are there, with its key's hash")
    stolen = [line for line in lines if line["identity"] == stage.tenants["acme"].admin.spki_sha256]
    story.check(
        [line["reason"] for line in stolen] == ["unregistered-identity"],
        "so is the stolen certificate, by its hash",
    )
    text = stage.agent.audit_file.read_text()
    story.check("command" not in text and "/etc/owner" not in text, "no command line is in it")


def metrics(story: Story, stage: Stage) -> None:
    story.step("The metrics: counters by tenant, endpoint and status; no name that a tenant chose")
    lines = stage.agent.metrics()
    shown = [line for line in lines if line.startswith("vcnode_vnagent_requests_total{")]
    gauges = (
        "vcnode_vnagent_tenants ",
        "vcnode_vnagent_pods ",
        "vcnode_vnagent_connections ",
        "vcnode_vnagent_tunnels ",
        "vcnode_tasks ",
    )
    shown += [line for line in lines if line.startswith((*gauges, "vcnode_vnagent_handshake_failures_total"))]
    story.came("\n".join(shown))
    story.check(stage.agent.metric("vcnode_vnagent_tenants") == 2, "two tenants are left")
    story.check(
        stage.agent.metric("vcnode_vnagent_handshake_failures_total") >= 3,
        "the refused handshakes are counted",
    )
    story.check(not any("vault" in line for line in lines), "no pod is named")
    story.wait(lambda: stage.agent.metric("vcnode_vnagent_tunnels") == 0, "no stream is left behind")


def status(story: Story, stage: Stage) -> None:
    story.step("vcnode status: what the daemon says of itself")
    agent = stage.agent
    report = status_report.read(agent.readyz(), agent.status_body())
    story.came(
        "\n".join(status_report.render(report, str(agent.socket), (report.status.started_at or 0) + 1))
    )
    story.check(report.is_ready, "it is ready")
    story.check(set(report.status.sources) == {"tenants", "pods"}, "both sources are heard")


def _get(story: Story, caller: Caller, path: str) -> Answer:
    story.asked(caller.name, f"GET {path}")
    answer = caller.get(path)
    story.came(f"{answer.status_line}\n{answer.text}")
    return answer


def _upgrade_refused(story: Story, caller: Caller, path: str) -> Answer:
    story.asked(caller.name, f"POST {path}   Upgrade: SPDY/3.1")
    with caller.upgrade(path) as stream:
        answer = stream.whole()
    story.came(f"{answer.status_line}\n{_message(answer)}")
    return answer


def _message(answer: Answer) -> str:
    """The text of a v1 Status, as kubectl prints it."""
    try:
        document: Any = json.loads(answer.body)
    except ValueError:
        return answer.text
    return str(document.get("message", "")) if isinstance(document, dict) else answer.text


def handshake_refused(story: Story, caller: Caller, claim: str) -> None:
    """Claim that the caller does not get so far as to be answered. Raises NotAsToldError."""
    story.asked(caller.name, f"GET {LOG}")
    try:
        answer = caller.get(LOG)
    except RefusedError as error:
        story.came(f"TLS: {error}")
        story.check(True, f"refused before any request: {claim}")
    else:
        story.check(False, f"refused before any request: {claim} (got {answer.status_line})")


def _requests_counted(stage: Stage) -> int:
    prefix = "vcnode_vnagent_requests_total{"
    return int(sum(float(x.rpartition(" ")[2]) for x in stage.agent.metrics() if x.startswith(prefix)))


def _names(items: list[dict[str, Any]], part: str) -> str:
    return ", ".join(sorted(f"{item[part]['namespace']}/{item[part]['name']}" for item in items))


def _pods_of(answer: Answer) -> str:
    return _names(json.loads(answer.body)["pods"], "podRef")
