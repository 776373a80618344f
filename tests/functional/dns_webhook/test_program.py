# SPDX-License-Identifier: Apache-2.0
"""The webhook as a process: `--check-config`, exit codes, and stop.

tests/k8s tests its decisions and its registration with a real apiserver.
"""

import asyncio
import signal
import ssl
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from devkit.pki import Authority
from dns_webhook.server import LIVE, READY
from tests import waiting

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 30.0
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: super, cluster: {server: "https://127.0.0.1:9"}}]
users: [{name: webhook, user: {token: abc}}]
contexts: [{name: super, context: {cluster: super, user: webhook}}]
current-context: super
"""


def write_config(directory: Path, **changed: object) -> Path:
    path = directory / "config.yaml"
    document = {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "DnsWebhookConfiguration",
        # Without a kubeconfig: the API server is unreachable.
        "superCluster": {"kubeconfigFile": "kubeconfig"},
        "listen": {"names": ["127.0.0.1"], "address": "127.0.0.1", "port": 0},
        "stateDirectory": "state",
        "resolvConf": "",
    }
    path.write_text(yaml.safe_dump(document | changed))
    return path


async def started(config: Path, *more: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dns_webhook", "--config", str(config), *more),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str]:
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        errors = await process.stderr.read()
        return await process.wait(), errors.decode()


async def test_check_config_exit_codes(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    code, errors = await ended(await started(config, "--check-config"))
    assert (code, errors.splitlines()) == (
        2,
        [
            f"{config}: superCluster.kubeconfigFile: {tmp_path}/kubeconfig: No such file or directory;"
            " create it, or correct the path in the configuration"
        ],
    )
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    code, errors = await ended(await started(config, "--check-config"))
    assert (code, errors) == (0, f"{config}: ok\n")
    code, errors = await ended(
        await started(
            write_config(tmp_path, clusterDomain="No Domain", listen={"names": []}), "--check-config"
        )
    )
    assert code == 2
    assert "clusterDomain: expected a domain" in errors
    assert "listen.names: expected at least one" in errors


async def test_a_damaged_state_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    file = tmp_path / "state" / "authorities.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\nrubbish\n")
    code, errors = await ended(await started(write_config(tmp_path)))
    assert (code, "authorities.pem" in errors, "Traceback" in errors) == (2, True, False)
    assert file.read_text() == "-----BEGIN CERTIFICATE-----\nrubbish\n"


async def test_without_an_api_server_it_denies_and_stops_cleanly(tmp_path: Path) -> None:
    process = await started(write_config(tmp_path))
    try:
        port = await listening(process)
        # API servers would trust its own authority.
        context = ssl.create_default_context(cafile=str(tmp_path / "state" / "authorities.pem"))
        async with (
            asyncio.timeout(DEADLINE_S),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        ):
            url = f"https://127.0.0.1:{port}"
            async with session.get(url + LIVE) as reply:
                assert reply.status == 200
            async with session.get(url + READY) as reply:
                assert reply.status == 503
            async with session.post(url + "/mutate", json=review()) as reply:
                response = (await reply.json())["response"]
        assert (response["allowed"], response["status"]["code"]) == (False, 503)
        process.send_signal(signal.SIGTERM)
        assert (await ended(process))[0] == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_certificate_of_another_program_is_served_and_followed(tmp_path: Path) -> None:
    """As cert-manager renews it: both files change, and connections after that see the new one."""
    authority = Authority.create("cert-manager")
    names = [path.name for path in authority.issue("first", sans_ip=["127.0.0.1"]).write(tmp_path, "tls")]
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    config = write_config(tmp_path, serving={"certificateFile": names[0], "keyFile": names[1]})
    document = yaml.safe_load(config.read_text())
    del document["stateDirectory"]
    config.write_text(yaml.safe_dump(document))
    code, errors = await ended(await started(config, "--check-config"))
    assert (code, errors) == (0, f"{config}: ok\n")
    process = await started(config)
    try:
        port = await listening(process)
        context = ssl.create_default_context(cadata=authority.cert_pem.decode())
        assert await served_name(port, context) == "first"
        authority.issue("second", sans_ip=["127.0.0.1"]).write(tmp_path, "tls")

        async def is_second() -> None:
            assert await served_name(port, context) == "second"

        await waiting.until_it_succeeds(is_second, AssertionError)
        assert not (tmp_path / "state").exists()
        process.send_signal(signal.SIGTERM)
        assert (await ended(process))[0] == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_check_finds_a_missing_certificate_and_a_start_ends(tmp_path: Path) -> None:
    Authority.create("cert-manager").issue("first", sans_ip=["127.0.0.1"]).write(tmp_path, "tls")
    (tmp_path / "tls.key").unlink()
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    config = write_config(tmp_path, serving={"certificateFile": "tls.crt", "keyFile": "tls.key"})
    code, errors = await ended(await started(config, "--check-config"))
    assert (code, errors.splitlines()) == (
        2,
        [
            f"{config}: serving.keyFile: {tmp_path}/tls.key: No such file or directory;"
            " create it, or correct the path in the configuration"
        ],
    )
    code, errors = await ended(await started(config))
    assert (code, "Traceback" in errors) == (2, False)


async def served_name(port: int, context: ssl.SSLContext) -> str:
    """The common name of the certificate that a new connection sees."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        certificate = writer.get_extra_info("peercert")
    finally:
        writer.close()
        await writer.wait_closed()
    names = {key: value for part in certificate["subject"] for key, value in part}
    return str(names["commonName"])


async def listening(process: asyncio.subprocess.Process) -> int:
    """The port, from its log."""
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        while True:
            line = (await process.stderr.readline()).decode()
            assert line, "it ended"
            if '"started' in line:
                return int(yaml.safe_load(line)["port"])


def review() -> dict[str, object]:
    tenant_keys = {"cluster": "a", "namespace": "shop", "uid": "1"}
    annotations = {f"tenancy.x-k8s.io/{key}": value for key, value in tenant_keys.items()}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "namespace": "a-shop",
            "object": {"metadata": {"annotations": annotations}, "spec": {"dnsPolicy": "ClusterFirst"}},
        },
    }
