# SPDX-License-Identifier: Apache-2.0
"""Programs in pods use their own tenant's apiserver, with the token of their account."""

from __future__ import annotations

import base64
import json

import pytest

from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.syncer.aging import AGING_POD, AGING_TOKEN, aging_began
from tests.k8s.syncer.shops import Shop, agnhost, object_of, pod, pod_spec

pytestmark = pytest.mark.timeout(300)

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


def _review(api: KubernetesApi, token: str, *audiences: str) -> JsonObject:
    spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    found: JsonObject = api.create(_REVIEWS, review)["status"]
    return found


def _claims(token: str) -> JsonObject:
    part = token.split(".")[1]
    found: JsonObject = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def test_client_reaches_its_tenants_apiserver(shops: tuple[Shop, Shop]) -> None:
    """client-go with no configuration but what the pod has: it trusts nothing else, and sends its token."""
    spec = {
        "containers": [agnhost("inclusterclient", "--poll-interval=1")],
        "terminationGracePeriodSeconds": 1,
    }
    for shop in shops:
        shop.apply(pod("client", spec, labels={"app": "client"}))
    for shop in shops:
        shop.wait_running("app=client")
        shop.wait_own("it was answered", lambda own: _healthy_polls(own.kubectl("logs", "client").text) > 1)


def test_client_goes_on_with_another_token(shop: Shop) -> None:
    """The Secret of its token is deleted below: it is issued again, and the kubelet mounts the new one."""
    spec = {
        "containers": [agnhost("inclusterclient", "--poll-interval=1")],
        "terminationGracePeriodSeconds": 1,
    }
    shop.apply(pod("client", spec, labels={"app": "client"}))
    shop.wait_running("app=client")
    first = shop.sh("client", f"cat {_ACCOUNT}/token").check().text
    (secret,) = [each for each in shop.super_items("secrets") if _mentions_in(each, first)]
    name = secret["metadata"]["name"]
    shop.super_api.delete(f"/api/v1/namespaces/{shop.super_namespace}/secrets/{name}")
    shop.wait("another token is mounted", lambda: _mounted(shop, "client") not in ("", first))
    second = _mounted(shop, "client")
    assert _review(shop.api, second)["user"]["username"] == f"system:serviceaccount:{shop.namespace}:default"
    polls = _healthy_polls(shop.kubectl("logs", "client").text)
    shop.wait("it is answered on", lambda: _healthy_polls(shop.kubectl("logs", "client").text) > polls + 12)
    assert "status=failed" not in shop.kubectl("logs", "client").text


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_token_is_renewed_before_it_ends(aging: Shop) -> None:
    """A token of the shortest lifetime, at 80 % of it: its pod has been there since the ring started."""
    first = _claims(_mounted(aging, AGING_POD, AGING_TOKEN))
    assert first["exp"] - first["iat"] == 600

    def renewed() -> JsonObject | None:
        token = _mounted(aging, AGING_POD, AGING_TOKEN)
        claims = _claims(token) if token else {}
        return claims if claims.get("iat", 0) > aging_began(aging) + 400 else None

    aging.wait("a renewed token is mounted", renewed, timeout_s=600)
    claims = renewed()
    assert claims is not None
    assert claims["kubernetes.io"]["pod"]["name"] == AGING_POD
    status = _review(aging.api, _mounted(aging, AGING_POD, AGING_TOKEN))
    assert status.get("authenticated") is True, status
    assert aging.get("pods", AGING_POD)["status"]["containerStatuses"][0]["restartCount"] == 0


def test_mounted_account_is_the_tenants(shops: tuple[Shop, Shop]) -> None:
    for shop in shops:
        shop.apply(
            object_of("v1", "ServiceAccount", "robot"),
            pod("web", pod_spec(serviceAccountName="robot"), labels={"app": "web"}),
        )
    for shop in shops:
        (web,) = shop.wait_running("app=web")
        content = {
            name: shop.sh("web", f"cat {_ACCOUNT}/{name}").check().text
            for name in ("ca.crt", "namespace", "token")
        }
        assert content["ca.crt"].strip() == shop.tenant.apiserver.authority.cert_pem.decode().strip()
        assert content["namespace"] == shop.namespace
        status = _review(shop.api, content["token"])
        assert status.get("authenticated") is True, status
        assert status["user"]["username"] == f"system:serviceaccount:{shop.namespace}:robot"
        extra = status["user"]["extra"]
        assert extra["authentication.kubernetes.io/pod-name"] == ["web"]
        assert extra["authentication.kubernetes.io/pod-uid"] == [web["metadata"]["uid"]]
        node = shop.api.get(f"/api/v1/nodes/{web['spec']['nodeName']}")["metadata"]
        assert extra["authentication.kubernetes.io/node-name"] == [node["name"]]
        assert extra["authentication.kubernetes.io/node-uid"] == [node["uid"]]
        # Neither the super cluster nor the other tenant knows it.
        other = shops[1 - shops.index(shop)]
        for elsewhere in (shop.super_api, other.api):
            assert not _review(elsewhere, content["token"]).get("authenticated")


def test_projected_token_has_audience_and_expiry(shop: Shop) -> None:
    source = {"serviceAccountToken": {"audience": "vault", "expirationSeconds": 900, "path": "vault"}}
    spec = pod_spec(volumes=[{"name": "token", "projected": {"sources": [source]}}])
    spec["containers"][0]["volumeMounts"] = [{"name": "token", "mountPath": "/token"}]
    shop.apply(pod("web", spec, labels={"app": "web"}))
    (web,) = shop.wait_running("app=web")
    token = shop.sh("web", "cat /token/vault").check().text
    claims = _claims(token)
    assert claims["aud"] == ["vault"]
    assert claims["exp"] - claims["iat"] == 900
    assert claims["kubernetes.io"]["pod"] == {"name": "web", "uid": web["metadata"]["uid"]}
    assert not _review(shop.api, token).get("authenticated")
    assert _review(shop.api, token, "vault").get("authenticated") is True


def test_token_ends_with_its_pod(shop: Shop) -> None:
    shop.apply(pod("web", pod_spec(), labels={"app": "web"}))
    shop.wait_running("app=web")
    token = shop.sh("web", f"cat {_ACCOUNT}/token").check().text
    assert _review(shop.api, token).get("authenticated") is True
    shop.kubectl("delete", "pod", "web").check()
    # The apiserver caches a valid token for some seconds.
    shop.wait("the token is refused", lambda: not _review(shop.api, token).get("authenticated"))
    shop.wait("no token stays in the super cluster", lambda: not _mentions(shop, token))


def test_no_long_lived_token_is_made(shop: Shop) -> None:
    shop.apply(pod("web", pod_spec(), labels={"app": "web"}))
    shop.wait_running("app=web")
    for secrets in (shop.items("secrets"), shop.super_items("secrets")):
        assert not [s for s in secrets if s["type"] == "kubernetes.io/service-account-token"]


def test_account_is_not_mounted_where_a_pod_refuses_it(shop: Shop) -> None:
    shop.apply(pod("web", pod_spec(automountServiceAccountToken=False), labels={"app": "web"}))
    shop.wait_running("app=web")
    assert shop.sh("web", f"ls {_ACCOUNT}").code != 0


def test_service_environment_is_the_tenants(shops: tuple[Shop, Shop]) -> None:
    for shop in shops:
        shop.apply(object_of("v1", "Service", "api", spec={"ports": [{"name": "http", "port": 80}]}))
        shop.wait_own("the service is below", lambda own: own.in_super("services", "api") is not None)
        shop.apply(pod("web", pod_spec(), labels={"app": "web"}))
    for shop in shops:
        shop.wait_running("app=web")
        shown = dict(line.partition("=")[::2] for line in shop.sh("web", "env").check().text.splitlines())
        assert shown["API_SERVICE_PORT"] == "80"
        assert shown["KUBERNETES_SERVICE_PORT"] == "443"
        assert shown["KUBERNETES_SERVICE_HOST"]


def _healthy_polls(log: str) -> int:
    """The client logs its failures alone; its last poll may not be over."""
    return log.count("calling /healthz") - log.count("status=failed") - 1


def _mounted(shop: Shop, name: str, path: str = f"{_ACCOUNT}/token") -> str:
    """The token that a pod has now; empty while it cannot be read."""
    return shop.sh(name, f"cat {path}").text


def _mentions(shop: Shop, token: str) -> bool:
    return any(_mentions_in(secret, token) for secret in shop.super_items("secrets"))


def _mentions_in(secret: JsonObject, token: str) -> bool:
    return base64.b64encode(token.encode()).decode() in json.dumps(secret)
