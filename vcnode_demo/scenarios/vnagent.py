# SPDX-License-Identifier: Apache-2.0
"""Scenario 1: vn-agent. A tenant uses its pods, others cannot, and audit log and metrics show both.

`run` has all steps. Each step is a function that needs only an open environment.
"""

import json
from typing import Any

from devkit.audit_fields import AUDIT_FIELDS
from vcnode.core import status_report
from vcnode.terminal import columns
from vcnode_demo.environment import Environment
from vcnode_demo.narrator import Narrator
from vcnode_demo.tenant_client import HttpAnswer, RefusedError, TenantClient

LOG = "/containerLogs/web/shop/app"
EXEC = "/exec/web/shop/app?command=sh&input=1&output=1"
FORWARD = "/portForward/web/shop"
VAULT_LOG = "/containerLogs/web/vault/app"
VAULT_EXEC = "/exec/web/vault/app?command=sh&input=1&output=1"
# A removed tenant's live connections must end within this time.
CUT_S = 5.0


def run(narrator: Narrator, environment: Environment) -> None:
    """All steps, in order. Raises CheckFailedError."""
    narrator.begin_scenario("Scenario 1: vn-agent, the kubelet that tenants see")
    logs(narrator, environment)
    follow(narrator, environment)
    execute(narrator, environment)
    forward(narrator, environment)
    pages(narrator, environment)
    other_tenant(narrator, environment)
    wrong_certificates(narrator, environment)
    metrics_client(narrator, environment)
    removed_tenant(narrator, environment)
    audit(narrator, environment)
    metrics(narrator, environment)
    status(narrator, environment)


def logs(narrator: Narrator, environment: Environment) -> None:
    narrator.step("Each tenant reads the log of its pod web/shop: equal requests, and each gets its own log")
    for name in ("acme", "globex"):
        answer = _get(narrator, environment.apiserver_of(name), LOG)
        pod = environment.pods[f"{name} web/shop"]
        narrator.check(answer.status == 200 and pod.marker in answer.text, f"it is {name}'s log")
        asked = environment.kubelet.requests(f"/containerLogs/{pod.namespace}/shop/app")
        narrator.check(
            len(asked) == 1, f"the kubelet was asked for {pod.namespace}/shop, its name on the node"
        )


def follow(narrator: Narrator, environment: Environment) -> None:
    narrator.step("As by kubectl logs -f: a line arrives while the log is open")
    pod = environment.pods["acme web/shop"]
    caller = environment.apiserver_of("acme")
    narrator.request(caller.name, f"GET {LOG}?follow=true&tailLines=0")
    with caller.open("GET", f"{LOG}?follow=true&tailLines=0") as conversation:
        narrator.response(conversation.head.status_line)
        environment.kubelet.append_log(pod.namespace, pod.name, "app", "acme's shop sold an anvil")
        line = next(conversation.chunks()).decode()
        narrator.response(line)
        narrator.check("sold an anvil" in line, "the line came while the request was open")
    upstream = environment.kubelet.requests(f"/containerLogs/{pod.namespace}/shop/app")[-1]
    narrator.wait_for(
        lambda: upstream.ended_s is not None, "the reader left, and the kubelet's side ended too"
    )


def execute(narrator: Narrator, environment: Environment) -> None:
    narrator.step("As by kubectl exec -it: an upgraded stream, bytes both ways")
    pod = environment.pods["acme web/shop"]
    caller = environment.apiserver_of("acme")
    narrator.request(caller.name, f"POST {EXEC}   Upgrade: SPDY/3.1")
    with caller.upgrade(EXEC) as stream:
        narrator.response(stream.head.status_line)
        narrator.check(stream.head.status == 101, "the protocol was switched")
        for line in ("hostname", "cat /etc/owner"):
            narrator.request(caller.name, line)
            stream.send(f"{line}\n".encode())
            output = stream.until(b"\n")
            narrator.response(output)
        narrator.check(pod.marker in output, "it is the shell of acme's pod")
    narrator.note(
        "(With a real container runtime these bytes are SPDY frames; vn-agent relays them unparsed.)"
    )


def forward(narrator: Narrator, environment: Environment) -> None:
    narrator.step("As by kubectl port-forward: an HTTP request to the pod, through the stream")
    pod = environment.pods["acme web/shop"]
    caller = environment.apiserver_of("acme")
    narrator.request(caller.name, f"POST {FORWARD}   Upgrade: SPDY/3.1")
    with caller.upgrade(FORWARD) as stream:
        narrator.response(stream.head.status_line)
        narrator.check(stream.head.status == 101, "the protocol was switched")
        narrator.request(caller.name, "GET / HTTP/1.1")
        stream.send(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
        head, body = stream.until(b"\r\n\r\n"), stream.until(b"\n")
        narrator.response(f"{head.splitlines()[0]}\n{body}")
        narrator.check(pod.marker in body, "acme's own web server answered")


def pages(narrator: Narrator, environment: Environment) -> None:
    narrator.step("The node's list of pods, as each tenant sees it")
    every = environment.pods.values()
    narrator.note(f"on the node: {', '.join(f'{pod.namespace}/{pod.name}' for pod in every)}")
    rows = [("", "GET /pods", "GET /stats/summary")]
    for name in ("acme", "globex"):
        caller = environment.apiserver_of(name)
        listed, summed = caller.get("/pods"), caller.get("/stats/summary")
        rows.append((name, _names(json.loads(listed.body)["items"], "metadata"), _pods_of(summed)))
        others = [pod for key, pod in environment.pods.items() if not key.startswith(f"{name} ")]
        leaked = [
            word
            for pod in others
            for word in (pod.marker, pod.uid, pod.namespace)
            if word in listed.text or word in summed.text
        ]
        narrator.check(not leaked, f"{name} finds no name, uid or content of another tenant")
    narrator.response("\n".join(columns(rows)))
    narrator.check(rows[1][1] == "web/shop, web/vault", "acme sees its two pods under its own names")
    narrator.check(rows[2][1] == "web/shop", "globex sees its one pod")


def other_tenant(narrator: Narrator, environment: Environment) -> None:
    narrator.step("globex tries acme's pod web/vault, which it knows by name")
    globex = environment.apiserver_of("globex")
    before = len(environment.kubelet.exchanges)
    foreign = _get(narrator, globex, VAULT_LOG)
    missing = _get(narrator, globex, "/containerLogs/web/no-such-pod/app")
    narrator.check(foreign.status == 404, "refused")
    narrator.check(
        foreign.comparable == missing.comparable,
        "byte for byte the answer for a missing pod (except the request's id)",
    )
    super_name = f"/containerLogs/{environment.pods['acme web/vault'].namespace}/vault/app"
    guessed = _get(narrator, globex, super_name)
    narrator.check(guessed.comparable == missing.comparable, "the same for its name on the node")
    streams = [
        _upgrade_refused(narrator, globex, path) for path in (VAULT_EXEC, VAULT_EXEC.replace("vault", "no"))
    ]
    narrator.check(streams[0].comparable == streams[1].comparable, "the same for exec")
    narrator.check(len(environment.kubelet.exchanges) == before, "the kubelet was not asked at all")
    own = environment.apiserver_of("acme").get(VAULT_LOG)
    narrator.check(own.status == 200, "acme itself reads it")


def wrong_certificates(narrator: Narrator, environment: Environment) -> None:
    acme, globex = environment.tenants["acme"], environment.tenants["globex"]
    before = len(environment.kubelet.exchanges)
    narrator.step("A stolen or minted certificate: of the right authority, but not the apiserver's")
    admin = environment.caller("acme's admin", acme.admin)
    answer = _get(narrator, admin, LOG)
    narrator.check(
        answer.status == 403,
        "refused: acme's authority issued it, but only the apiserver's own key is registered",
    )
    minted = globex.authority.issue("acme", usages=("client", "server"))
    answer = _get(narrator, environment.caller("globex as 'acme'", minted), LOG)
    narrator.check(answer.status == 403, "refused: a name in a certificate proves nothing")
    narrator.step("A certificate of an unregistered authority, or none, fails the handshake")
    unknown = type(acme.authority).create("kubernetes").issue("acme", usages=("client",))
    handshake_refused(
        narrator, environment.caller("unregistered", unknown), "an unregistered authority of the same name"
    )
    handshake_refused(narrator, environment.caller("unauthenticated", None), "no certificate")
    narrator.check(len(environment.kubelet.exchanges) == before, "the kubelet was not asked at all")


def metrics_client(narrator: Narrator, environment: Environment) -> None:
    narrator.step("acme's metrics-server has a certificate for pages alone")
    client = environment.caller("acme's metrics-server", environment.tenants["acme"].metrics)
    answer = client.get("/metrics/resource")
    narrator.request(client.name, "GET /metrics/resource")
    rows = [
        line for line in answer.text.splitlines() if line.startswith("container_memory_working_set_bytes{")
    ]
    narrator.response("\n".join([answer.status_line, *rows]))
    narrator.check(answer.status == 200 and len(rows) == 2, "a row for each of acme's containers alone")
    refused = _upgrade_refused(narrator, client, EXEC)
    narrator.check(refused.status == 403, "exec is refused for it")


def removed_tenant(narrator: Narrator, environment: Environment) -> None:
    narrator.step("initech's VirtualCluster is deleted while it has a shell open")
    initech, globex = environment.apiserver_of("initech"), environment.apiserver_of("globex")
    with initech.upgrade(EXEC) as theirs, globex.upgrade(EXEC) as others:
        theirs.send(b"hostname\n")
        narrator.request(initech.name, "hostname")
        narrator.response(theirs.until(b"\n"))
        environment.super_cluster.remove_tenant("initech")
        narrator.note("(the VirtualCluster initech is deleted)")
        narrator.check(theirs.is_cut(CUT_S), f"its live stream was cut within {CUT_S:.0f} s")
        others.send(b"hostname\n")
        narrator.check(others.until(b"\n") == "shop\n", "globex's stream, opened beside it, goes on")
    handshake_refused(narrator, initech, "a deleted tenant")


def audit(narrator: Narrator, environment: Environment) -> None:
    narrator.step("The audit log: one line for each decision, with these fields of the request alone")
    narrator.wait_for(
        lambda: _requests_counted(environment) == len(environment.agent.audit()),
        "it has a line for each decision",
    )
    lines = environment.agent.audit()
    rows = [("TENANT", "ENDPOINT", "POD", "DECISION", "STATUS", "REASON")]
    short = {tenant.key: tenant.name for tenant in environment.tenants.values()}
    for line in lines:
        pod = f"{line['namespace']}/{line['pod']}" if line["pod"] else "-"
        tenant = short.get(line["tenant"], "-")
        rows.append((tenant, line["endpoint"], pod, line["decision"], str(line["status"]), line["reason"]))
    narrator.response("\n".join(columns(rows)))
    narrator.check(all(tuple(line) == AUDIT_FIELDS for line in lines), "each has exactly these fields")
    attempts = [
        line
        for line in lines
        if (short.get(line["tenant"]), line["pod"], line["decision"]) == ("globex", "vault", "deny")
    ]
    narrator.check(len(attempts) >= 2, "globex's attempts at web/vault are there, with its key's hash")
    stolen = [line for line in lines if line["identity"] == environment.tenants["acme"].admin.spki_sha256]
    narrator.check(
        [line["reason"] for line in stolen] == ["unregistered-identity"],
        "so is the stolen certificate, by its hash",
    )
    text = environment.agent.audit_file.read_text()
    narrator.check("command" not in text and "/etc/owner" not in text, "it has no command line")


def metrics(narrator: Narrator, environment: Environment) -> None:
    narrator.step("The metrics: counters by tenant, endpoint and status, without names that a tenant chose")
    lines = environment.agent.metrics()
    shown = [line for line in lines if line.startswith("vcnode_vnagent_requests_total{")]
    gauges = (
        "vcnode_vnagent_tenants ",
        "vcnode_vnagent_pods ",
        "vcnode_vnagent_connections ",
        "vcnode_vnagent_tunnels ",
        "vcnode_tasks ",
    )
    shown += [line for line in lines if line.startswith((*gauges, "vcnode_vnagent_handshake_failures_total"))]
    narrator.response("\n".join(shown))
    narrator.check(environment.agent.metric("vcnode_vnagent_tenants") == 2, "two tenants are left")
    narrator.check(
        environment.agent.metric("vcnode_vnagent_handshake_failures_total") >= 3,
        "the refused handshakes are counted",
    )
    narrator.check(not any("vault" in line for line in lines), "they name no pod")
    narrator.wait_for(
        lambda: environment.agent.metric("vcnode_vnagent_tunnels") == 0, "all streams have ended"
    )


def status(narrator: Narrator, environment: Environment) -> None:
    narrator.step("vcnode status: the daemon's own report")
    agent = environment.agent
    report = status_report.read(agent.readyz(), agent.status_body())
    narrator.response(
        "\n".join(status_report.render(report, str(agent.socket), (report.status.started_at or 0) + 1))
    )
    narrator.check(report.is_ready, "it is ready")
    narrator.check(set(report.status.sources) == {"tenants", "pods"}, "both sources are synced")


def _get(narrator: Narrator, caller: TenantClient, path: str) -> HttpAnswer:
    narrator.request(caller.name, f"GET {path}")
    answer = caller.get(path)
    narrator.response(f"{answer.status_line}\n{answer.text}")
    return answer


def _upgrade_refused(narrator: Narrator, caller: TenantClient, path: str) -> HttpAnswer:
    narrator.request(caller.name, f"POST {path}   Upgrade: SPDY/3.1")
    with caller.upgrade(path) as stream:
        answer = stream.whole()
    narrator.response(f"{answer.status_line}\n{_message(answer)}")
    return answer


def _message(answer: HttpAnswer) -> str:
    """The text of a v1 Status, as kubectl prints it."""
    try:
        document: Any = json.loads(answer.body)
    except ValueError:
        return answer.text
    return str(document.get("message", "")) if isinstance(document, dict) else answer.text


def handshake_refused(narrator: Narrator, caller: TenantClient, claim: str) -> None:
    """Claim that the handshake refuses the caller. Raises CheckFailedError."""
    narrator.request(caller.name, f"GET {LOG}")
    try:
        answer = caller.get(LOG)
    except RefusedError as error:
        narrator.response(f"TLS: {error}")
        narrator.check(True, f"refused before any request: {claim}")
    else:
        narrator.check(False, f"refused before any request: {claim} (got {answer.status_line})")


def _requests_counted(environment: Environment) -> int:
    return int(environment.agent.metric("vcnode_vnagent_requests_total"))


def _names(items: list[dict[str, Any]], part: str) -> str:
    return ", ".join(sorted(f"{item[part]['namespace']}/{item[part]['name']}" for item in items))


def _pods_of(answer: HttpAnswer) -> str:
    return _names(json.loads(answer.body)["pods"], "podRef")
