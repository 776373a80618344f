# SPDX-License-Identifier: Apache-2.0
"""The plugin as one file: words for kubectl, files, signals, exit codes."""

import base64
import fcntl
import hashlib
import json
import os
import pty
import re
import signal
import stat
import termios
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kubectl_vc.arguments import VERBS
from kubectl_vc.core.view import CLUSTER_VERSIONS, VIRTUAL_CLUSTERS
from tests import waiting
from tests.functional.kubectl_vc.conftest import ROOT, Installed
from tests.unit.kubectl_vc.invocations import condition, running, secret

VERSIONS = {
    "words": ["get", CLUSTER_VERSIONS],
    "out": json.dumps({"items": [{"metadata": {"name": "v1.34"}}]}),
}
SCOPE = ["--context=super", "--as=ada"]


def object_answer(value: Any, *words: str) -> dict[str, Any]:
    return {"words": list(words), "out": json.dumps(value)}


ACME = object_answer(running(), "get", VIRTUAL_CLUSTERS, "acme", "--output=json")
SECRET = object_answer(secret(), "get", "secrets", "acme-kubeconfig", "--namespace=tenants")
CONTEXT = {"words": ["config", "current-context"], "out": "super\n"}


def watched(*values: Any, hangs: bool = True) -> dict[str, Any]:
    """As kubectl 1.34 prints events."""
    lines = "".join(f"{json.dumps({'type': 'MODIFIED', 'object': each})}\n" for each in values)
    return {"words": ["--watch"], "out": lines, "hangs": hangs}


def test_the_file_has_all_that_it_imports(installed: Installed, built: Path) -> None:
    """In an interpreter without site-packages; each verb loads its own modules."""
    code, out, err = installed.run("--version")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"kubectl-vc \d+\.\d+\.\d+\n", out)
    needed = {"restore": ["--from", "b"], "rotate": ["all"], "upgrade": ["v1.34"]}
    for verb in (*VERBS, "credential"):
        code, _, err = installed.run(verb, "acme", *needed.get(verb, []))
        assert (code, err.startswith("error: cannot ")) == (1, True), err
    names = set(zipfile.ZipFile(built / "kubectl-vc").namelist())
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "kubectl_vc").rglob("*.py")} <= names


def test_what_kubectl_is_asked_to_create(installed: Installed) -> None:
    made = running() | {"status": {}}
    installed.answer(VERSIONS, object_answer(made, "create"))
    ended = installed.run("--context", "super", "create", "--as=ada", "acme", "--no-wait", "-n", "tenants")
    assert ended == (0, "virtualcluster.tenancy.x-k8s.io/acme created in namespace tenants\n", "")
    listed, created = installed.calls()
    assert listed["words"] == ["get", CLUSTER_VERSIONS, "--output=json", *SCOPE]
    assert created["words"] == [
        *("create", "--filename=-", "--namespace=tenants", "--field-manager=kubectl-vc", "--output=json"),
        *SCOPE,
    ]
    assert json.loads(created["in"])["spec"] == {"clusterVersionName": "v1.34"}


def test_a_change_names_the_object_that_was_read(installed: Installed) -> None:
    installed.answer(ACME, object_answer(running(), "patch"))
    assert installed.run("rotate", "acme", "etcd-ca", "-n", "tenants")[0] == 0
    words = installed.calls()[1]["words"]
    patch = json.loads(next(word for word in words if word.startswith("--patch=")).removeprefix("--patch="))
    assert words[:5] == ["patch", VIRTUAL_CLUSTERS, "acme", "--namespace=tenants", "--type=merge"]
    assert patch["metadata"]["uid"] == "uid-of-acme"
    assert list(patch["metadata"]["annotations"]) == ["vcnode.io/rotate-etcd-ca"]


def test_a_deletion_names_the_uid(installed: Installed) -> None:
    installed.answer(ACME, {"words": ["delete"]})
    assert installed.run("delete", "acme", "--yes", "--no-wait")[0] == 0
    _, deleted = installed.calls()
    path = "/apis/tenancy.x-k8s.io/v1alpha1/namespaces/tenants/virtualclusters/acme"
    assert deleted["words"][:2] == ["delete", f"--raw={path}"]
    assert deleted["words"][2].startswith("--filename=")


def test_progress_is_that_of_the_watch(installed: Installed) -> None:
    pending = running(conditions=[condition("Ready", "False", "EtcdPending", "etcd has 0 of 1")])
    installed.answer(VERSIONS, object_answer(pending, "create"), watched(pending, running()))
    code, _, err = installed.run("create", "acme", "-n", "tenants")
    assert code == 0
    assert re.sub(r"\d\d:\d\d:\d\d  ", "TIME ", re.sub(r"after \d+ s", "after N s", err)).splitlines() == [
        "waiting for VirtualCluster tenants/acme to become Ready, at most 0:05:00",
        "TIME Ready False (EtcdPending): etcd has 0 of 1",
        "TIME Ready True",
        "VirtualCluster tenants/acme: done after N s",
        "To use it: kubectl vc shell acme -n tenants",
    ]


def test_a_wait_ends_at_its_time(installed: Installed) -> None:
    pending = running(conditions=[condition("Ready", "False", "EtcdPending", "etcd has 0 of 1")])
    installed.answer(VERSIONS, object_answer(pending, "create"), watched(pending))
    code, _, err = installed.run("create", "acme", "-n", "tenants", "--timeout=3")
    assert code == 1
    assert err.splitlines()[-2] == (
        "VirtualCluster tenants/acme is not done after 3 s: Ready False (EtcdPending): etcd has 0 of 1"
    )


def test_a_watch_that_ends_is_made_again(installed: Installed) -> None:
    """API servers end them after a while; kubectl exits with 0 then."""
    pending = running(conditions=[condition("Ready", "False")])
    installed.answer(VERSIONS, object_answer(pending, "create"), watched(pending, hangs=False))
    process = installed.start("create", "acme", "-n", "tenants")
    waiting.wait_until(lambda: sum("--watch" in each["words"] for each in installed.calls()) >= 2)
    installed.answer(watched(running()))
    assert process.communicate(timeout=30)[1].splitlines()[-2].startswith("VirtualCluster tenants/acme: done")
    assert process.returncode == 0


def test_an_interrupt_leaves_the_request(installed: Installed) -> None:
    pending = running(conditions=[condition("Ready", "False")])
    installed.answer(VERSIONS, object_answer(pending, "create"), watched(pending))
    process = installed.start("create", "acme", "-n", "tenants")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("waiting for ")
    assert process.stderr.readline().endswith("Ready False\n")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err.splitlines()) == (
        130,
        [
            "",
            "stopped waiting; what was asked of VirtualCluster tenants/acme goes on. To look: kubectl vc"
            " get acme -n tenants; kubectl vc doctor acme -n tenants",
        ],
    )


def test_a_kubeconfig_is_a_file_of_its_owner(installed: Installed) -> None:
    installed.answer(ACME, SECRET, CONTEXT)
    target = installed.directory / "acme.yaml"
    target.write_text("before")
    target.chmod(0o644)
    code, out, err = installed.run(
        "kubeconfig", "acme", "-n", "tenants", "-o", "acme.yaml", KUBECONFIG="a:/b"
    )
    assert (code, err) == (0, "")
    assert out == "acme.yaml is written; to use it: kubectl --kubeconfig acme.yaml get pods\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    plugin = json.loads(target.read_text())["users"][0]["user"]["exec"]
    assert plugin["command"] == "kubectl-vc"
    assert plugin["env"] == [{"name": "KUBECONFIG", "value": f"{installed.directory}/a:/b"}]


def test_merging_is_done_by_kubectl(installed: Installed) -> None:
    installed.answer(ACME, SECRET, CONTEXT, {"words": ["config"]})
    assert installed.run("kubeconfig", "acme", "-n", "tenants", "--merge", "--context=super")[0] == 0
    config = [each["words"] for each in installed.calls() if each["words"][0] == "config"]
    assert [words[1] for words in config] == ["set-cluster", "set-credentials", "set-context"]
    # The flags that chose the super cluster would be written into the file.
    assert [words for words in config if "--context=super" in words] == []


def test_a_kubeconfig_in_yaml_is_read_by_kubectl(installed: Installed) -> None:
    """vc-operator, or cert-manager for it, may write YAML."""
    config = secret()
    text = json.dumps(json.loads(base64.b64decode(config["data"]["value"])))
    config["data"]["value"] = base64.b64encode(b"# YAML\n" + text.encode()).decode()
    viewed = {"words": ["config", "view", "--raw", "--output=json"], "out": text}
    installed.answer(object_answer(config, "get", "secrets"), viewed)
    code, out, err = installed.run("credential", "acme", "-n", "tenants")
    assert (code, err) == (0, "")
    assert json.loads(out)["kind"] == "ExecCredential"


def test_the_shell_has_the_tenants_kubeconfig(installed: Installed) -> None:
    """The fixture sees that nothing of it is left."""
    installed.answer(ACME, SECRET, CONTEXT)
    script = 'echo "$KUBECTL_VC $PS1"; stat -c %a "$KUBECONFIG"; exit 7\n'
    code, out, _ = installed.run("shell", "acme", "-n", "tenants", typed=script, SHELL="/bin/sh")
    assert (code, out) == (7, "tenants/acme (tenants/acme) $ \n600\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_shell_first(installed: Installed, number: signal.Signals) -> None:
    installed.answer(ACME, SECRET, CONTEXT)
    process = installed.start("shell", "acme", "-n", "tenants", SHELL="/bin/sh")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("echo ready\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    # Before its input ends, which would end the shell with 0.
    assert process.wait(timeout=30) == 128 + number
    process.communicate()


def test_a_terminals_interrupt_ends_no_shell(installed: Installed) -> None:
    """Ctrl-C goes to both; the shell goes on, and so do we."""
    installed.answer(ACME, SECRET, CONTEXT)
    main, side = pty.openpty()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for descriptor in (0, 1, 2):
            os.dup2(side, descriptor)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        program = str(installed.directory / "bin/kubectl-vc")
        os.execve(  # noqa: S606 - ours, on a terminal of its own
            program,
            [program, "shell", "acme", "-n", "tenants"],
            {**installed.environment, "SHELL": "/bin/sh"},
        )
    os.close(side)
    seen = b""
    while b"(tenants/acme) $ " not in seen:
        seen += os.read(main, 4096)
    os.write(main, b"\x03")
    while seen.count(b"(tenants/acme) $ ") < 2:
        seen += os.read(main, 4096)
    os.write(main, b"exit 5\n")
    _, status = os.waitpid(pid, 0)
    os.close(main)
    assert os.waitstatus_to_exitcode(status) == 5


def test_kubectl_completes_by_the_other_name(installed: Installed) -> None:
    installed.answer(object_answer({"items": [running()]}, "get", VIRTUAL_CLUSTERS, "--namespace=tenants"))
    complete = "kubectl_complete-vc"
    assert installed.run("get", "-n", "tenants", "", program=complete) == (0, "acme\n:4\n", "")
    assert installed.run("ba", program=complete) == (0, "backup\n:4\n", "")
    assert installed.run("get", "", program=complete) == (0, ":4\n", "")


def test_errors_have_object_hop_and_remedy(installed: Installed) -> None:
    refused = 'Error from server (Forbidden): User "ada" cannot get\n'
    installed.answer({"words": ["get"], "err": refused, "code": 1})
    assert installed.run("sleep", "acme", "-n", "tenants") == (
        1,
        "",
        'error: cannot read VirtualCluster tenants/acme: the super cluster: Forbidden: User "ada" cannot get;'
        " ask an administrator of that cluster for this right, or use another --context\n",
    )
    (installed.directory / "bin" / "kubectl").unlink()
    code, _, err = installed.run("get", PATH="/nowhere")
    assert code == 1
    assert "NoKubectl: kubectl cannot be started" in err
    assert installed.run("get", "--nope")[0] == 2


def test_a_closed_pipe_is_no_trace(installed: Installed) -> None:
    installed.answer(object_answer({"items": [running(f"t{at}") for at in range(2000)]}, "get"))
    process = installed.start("get")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.close()
    process.stdout.readline()
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(30) == 1


def test_the_manifest_of_krew_has_the_archives_digest(built: Path) -> None:
    manifest = json.loads((built / "plugins/vc.yaml").read_text())
    (platform,) = manifest["spec"]["platforms"]
    archive = built / platform["uri"].rpartition("/")[2]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert (manifest["metadata"]["name"], platform["bin"]) == ("vc", "kubectl-vc")
    assert os.access(built / "kubectl-vc", os.X_OK)
