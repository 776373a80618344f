# SPDX-License-Identifier: Apache-2.0
"""Publication of our authorities in the registration."""

import base64
from pathlib import Path

import pytest
import yaml

from daemonkit.config.binding import parse
from dns_webhook import registration, server
from dns_webhook.config import KIND, DnsWebhookConfiguration
from dns_webhook.registration import RegistrationError, publish
from tenancy import keys
from tests.unit.dns_webhook.registration_api import SHIPPED, Api

pytestmark = pytest.mark.asyncio


def pem(name: str) -> bytes:
    return f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n".encode()


async def test_authorities_are_added_once_and_others_stay() -> None:
    other = base64.b64encode(pem("other")).decode()
    api = Api(caBundle=other)
    assert await publish(api, [pem("a")], [])
    assert not await publish(api, [pem("a")], [])
    assert api.bundle == [pem("other"), pem("a")]
    assert await publish(api, [pem("b")], [pem("a")])
    assert (api.bundle, api.patches) == ([pem("other"), pem("b")], 2)


async def test_an_empty_bundle_gets_our_authorities() -> None:
    api = Api()
    assert await publish(api, [pem("a"), pem("b")], [])
    assert api.bundle == [pem("a"), pem("b")]


async def test_a_registration_without_our_webhook_is_an_error() -> None:
    api = Api()
    api.value["webhooks"][0]["name"] = "another"
    with pytest.raises(RegistrationError, match="has no webhook"):
        await publish(api, [pem("a")], [])


async def test_deleted_replicas_never_evict_a_living_one() -> None:
    """Each new replica leaves an authority behind; living ones publish in between."""
    api = Api()
    alive = [[pem("a")], [pem("b1"), pem("b2")], [pem("c")]]
    for ours in alive:
        await publish(api, ours, [])
    for number in range(100):
        await publish(api, [pem(f"gone-{number}")], [])
        for ours in alive:
            await publish(api, ours, [])
            assert set(ours) <= set(api.bundle)
    assert len(api.bundle) == registration.MAX_AUTHORITIES
    # Without a new replica the registration stays unchanged.
    patches = api.patches
    for ours in alive * 3:
        assert not await publish(api, ours, [])
    assert api.patches == patches


@pytest.mark.parametrize(
    ("registered", "ours", "stale", "expected"),
    [
        ("", "a", "", "a"),
        ("ab", "a", "", "ab"),
        ("ab", "ac", "", "bac"),
        ("ab", "a", "b", "a"),
        ("abcdefgh", "a", "", "abcdefgh"),
        ("abcdefghi", "a", "", "bcdefghia"),
        ("abcdefghijklmnop", "q", "", "bcdefghijklmnopq"),
        ("abcdefghijklmnop", "aq", "", "bcdefghijklmnopaq"[1:]),
        ("abcdefghijklmnopqr", "s", "", "defghijklmnopqrs"),
    ],
)
async def test_bundle_order_and_limit(registered: str, ours: str, stale: str, expected: str) -> None:
    def each(letters: str) -> list[bytes]:
        return [pem(letter) for letter in letters]

    assert registration.merged(each(registered), each(ours), each(stale)) == each(expected)


async def test_the_shipped_registration_is_of_this_webhook() -> None:
    shipped = yaml.safe_load((SHIPPED / "registration.yaml").read_text())
    (webhook,) = shipped["webhooks"]
    assert shipped["metadata"]["name"] == webhook["name"] == registration.NAME
    assert webhook["clientConfig"]["service"]["path"] == server.PATH
    assert f"'{keys.CLUSTER}' in object.metadata.annotations" in webhook["matchConditions"][0]["expression"]


async def test_the_shipped_manifests_fit_together() -> None:
    """Names, ports and files appear in several manifests."""
    values = list(yaml.safe_load_all((SHIPPED / "deployment.yaml").read_text()))
    found = {value["kind"]: value for value in values}
    assert len(found) == len(values)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {each["name"]: Path(each["mountPath"]) for each in container["volumeMounts"]}
    path = Path(container["args"][1])
    assert path.parent == mounts["config"]
    files = found["ConfigMap"]["data"]
    text = files[path.name].encode()
    config = parse(text, DnsWebhookConfiguration, kind=KIND, source="x", directory=path.parent)
    service = found["Service"]
    name = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert config.listen.names == (name,)
    assert [each["containerPort"] for each in container["ports"]] == [config.listen.port]
    assert config.state_directory is not None
    assert config.state_directory.is_relative_to(mounts["state"])
    assert config.super_cluster.kubeconfig_file.parent == mounts["config"]
    assert config.super_cluster.kubeconfig_file.name in files
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert found[kind]["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    probes = [container[probe]["httpGet"] for probe in ("readinessProbe", "livenessProbe")]
    assert [probe["path"] for probe in probes] == [server.READY, server.LIVE]
