# SPDX-License-Identifier: Apache-2.0
"""The tenant's kube-apiserver: a Deployment, and the files of settings that it reads.

Annotations of its pods change only with files that it never reads again. Certificates, keys and bundles that
it reloads are replaced below it: a renewal restarts nothing.
"""

import hashlib
import json
from collections.abc import Iterable

from tenant_operator.datastores.port import Datastore
from tenant_operator.model import names, pods
from tenant_operator.model.cluster_version import ComponentSize
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object
from tenant_operator.model.pods import Files

# Longer than the endpoints of its Service take to be known everywhere.
#
# This is not `--shutdown-delay-duration`: with its first signal a kube-apiserver closes the connection to the
# signer of tokens (kubernetes, pkg/serviceaccount/externaljwt/plugin), and answers 500 to each TokenRequest
# for as long as it goes on serving. So the signal comes when no new client is led here any more. What
# arrives on open connections is answered 429 then, and clients send it again to another server.
#
# Between the signal and the first 429 are the hooks that run before a shutdown: 0.1 to 0.3 s, in which a
# request for a token is answered 500, which clients do not repeat. So busy clients shall have left their open
# connections before the signal. Of a client with 22 tokens a second 12 ends of an API server interrupted 19
# requests without GOAWAY, and none with it.
_ENDPOINTS_S = 5
# Such a part of all requests is answered with GOAWAY too: the client opens its next HTTP/2 connection, to a
# server that does not end. One with 100 requests a second has then left within _ENDPOINTS_S but for 1 in 150;
# 1 % of requests pay a handshake.
_GOAWAY_CHANCE = "0.01"
# Requests may take 60 s (--request-timeout).
_GRACE_S = _ENDPOINTS_S + 60 + 10
_AUDIT = "audit.yaml"
_AUTHENTICATION = "authentication.yaml"
_HEALTH_RULES = "health.jsonl"
_HEALTH_PATHS = ("/livez", "/livez/ping", "/readyz", "/healthz")
_SIGNER = "vc-signer"
_SIGNER_SIZE = ComponentSize(cpu="5m", memory="48Mi")
_SIGNER_SINCE = (1, 34, 0)
_CONFIG_DIGEST_SINCE = (1, 34, 0)
_SIGNER_PROBE_PORT = 6444
# Of what it shows as a client. It reads these files again, and the operator cannot ask which it uses: pods
# of another template do.
_ISSUERS = tuple(
    f"{each}/{names.ISSUER}" for each in (names.FRONT_PROXY_CLIENT, names.API_SERVER_KUBELET_CLIENT)
)
_KUBELET_BUNDLE = f"{names.AUTHORITIES}/{names.KUBELET_SERVING_BUNDLE}"


def config_map(control_plane: ControlPlane) -> Object:
    """Settings that have no flag. JSON is YAML."""
    release = control_plane.release
    data = {
        _AUTHENTICATION: json.dumps(_authentication(control_plane), indent=1),
        _HEALTH_RULES: "\n".join(json.dumps(each) for each in _health_rules()),
    }
    if release.audit_policy is not None:
        data[_AUDIT] = json.dumps(release.audit_policy, indent=1)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": pods.metadata(control_plane, names.API_SERVER_CONFIG, names.API_SERVER),
        "data": data,
    }


def _authentication(control_plane: ControlPlane) -> Object:
    """The release's issuers of tokens. Without credentials, one may ask for health alone."""
    is_stable = control_plane.release.version >= (1, 34, 0)
    return {
        **(control_plane.release.authentication_config or {}),
        "apiVersion": f"apiserver.config.k8s.io/{'v1' if is_stable else 'v1beta1'}",
        "kind": "AuthenticationConfiguration",
        "anonymous": {"enabled": True, "conditions": [{"path": each} for each in _HEALTH_PATHS]},
    }


def _health_rules() -> list[Object]:
    """ABAC, beside RBAC: what a tenant does to its roles must not make the kubelet's probes fail."""
    return [
        {
            "apiVersion": "abac.authorization.kubernetes.io/v1beta1",
            "kind": "Policy",
            "spec": {"group": "system:unauthenticated", "readonly": True, "nonResourcePath": path},
        }
        for path in _HEALTH_PATHS
    ]


def deployment(control_plane: ControlPlane, inputs: ManifestInputs, datastore: Datastore) -> Object:
    """Surges by one: the new one is ready before an old one ends."""
    size = control_plane.size.api_server
    files = (*_own_files(control_plane), *datastore.apiserver_files)
    sidecars = [*datastore.sidecars]
    volumes = [pods.files_volume(files), *datastore.apiserver_volumes]
    mounts = [pods.FILES_MOUNT, *datastore.apiserver_mounts]
    if has_signer(control_plane):
        sidecars.append(_signer(control_plane))
        volumes += [
            {"name": "signer-keys", "secret": _signer_keys()},
            {"name": "signer-socket", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ]
        mounts.append(_SOCKET_MOUNT)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": pods.metadata(control_plane, names.API_SERVER, names.API_SERVER),
        "spec": {
            "replicas": 0 if control_plane.is_asleep else size.replicas,
            "revisionHistoryLimit": 2,
            # `kubectl rollout pause` would keep its place among those that change for ever.
            "paused": False,
            "selector": pods.selector(names.API_SERVER),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": pods.pod_template(
                names.API_SERVER,
                control_plane,
                containers=[_container(control_plane, datastore, mounts)],
                sidecars=sidecars,
                volumes=volumes,
                grace_seconds=_GRACE_S,
                digest=_digest(control_plane, inputs, datastore),
            ),
        },
    }


def has_signer(control_plane: ControlPlane) -> bool:
    """Without vc-signer a rotation of service account keys restarts the API server and ends tokens.

    Kubernetes 1.33 with a signer serves no /openid/v1/jwks ("no public key getter provided"), by which others
    verify tokens: its API server signs by itself, with the same key.
    """
    return control_plane.release.images.signer != "" and control_plane.release.version >= _SIGNER_SINCE


def reports_encryption(control_plane: ControlPlane) -> bool:
    """Whether its metrics have the digest of the encryption configuration that it uses."""
    return control_plane.release.version >= _CONFIG_DIGEST_SINCE


def _digest(control_plane: ControlPlane, inputs: ManifestInputs, datastore: Datastore) -> str:
    files = (_KUBELET_BUNDLE, *_ISSUERS, *datastore.apiserver_digests)
    parts = [inputs.digests.get(each, "") for each in files]
    if not has_signer(control_plane):
        parts.append(inputs.digests.get(names.SERVICE_ACCOUNT_KEYS, ""))
    if not reports_encryption(control_plane):
        # It reads the file again all the same. Its pods alone show by which key.
        parts.append(inputs.digests.get(names.ENCRYPTION_CONFIG, ""))
    if control_plane.release.audit_policy is not None:
        parts.append(json.dumps(control_plane.release.audit_policy, sort_keys=True))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


_SERVING = pods.key_pair(names.API_SERVER_SERVING)
_KUBELET_CLIENT = pods.key_pair(names.API_SERVER_KUBELET_CLIENT)
_FRONT_PROXY = pods.key_pair(names.FRONT_PROXY_CLIENT)
_BUNDLES = pods.authorities(names.CLUSTER_BUNDLE, names.REQUEST_HEADER_BUNDLE, names.KUBELET_SERVING_BUNDLE)
_ENCRYPTION = Files("Secret", names.ENCRYPTION_CONFIG, ("config.yaml",))
_ACCOUNT_KEY = Files("Secret", names.SERVICE_ACCOUNT_KEYS, ("signing.pem", "verify.pem"))


def _settings(control_plane: ControlPlane) -> Files:
    audit = (_AUDIT,) if control_plane.release.audit_policy is not None else ()
    return Files("ConfigMap", names.API_SERVER_CONFIG, (_AUTHENTICATION, _HEALTH_RULES, *audit))


def _own_files(control_plane: ControlPlane) -> Iterable[Files]:
    yield from (_SERVING, _KUBELET_CLIENT, _FRONT_PROXY, _BUNDLES, _ENCRYPTION, _settings(control_plane))
    if not has_signer(control_plane):
        yield _ACCOUNT_KEY


def _container(control_plane: ControlPlane, datastore: Datastore, mounts: list[Object]) -> Object:
    size = control_plane.size.api_server
    release = control_plane.release
    found = _flags(control_plane) | datastore.apiserver_flags | release.api_server_args
    port = "https"
    # A store of its own shows by its own readiness. Without one this probe alone tells that it is lost, and
    # with a server that answers nothing kube-apiserver takes two seconds more for each answer.
    period_s, failures = (3, 3) if control_plane.has_own_store else (2, 2)
    return pods.container(
        names.API_SERVER,
        release.images.api_server,
        size,
        command=["kube-apiserver"],
        args=pods.flags(found),
        env=[{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        mounts=mounts,
        ports={port: names.API_SERVER_PORT},
        probes={
            # Ready once it starts, it is in use a second later. A start on a large store takes minutes.
            "startupProbe": pods.probe("/readyz", port, scheme="HTTPS", period_s=1, failures=600),
            "readinessProbe": pods.probe(
                "/readyz", port, scheme="HTTPS", period_s=period_s, failures=failures
            ),
            # A restart helps a process that hangs, and nothing else: neither a lost datastore nor what a
            # tenant's webhook does to it.
            "livenessProbe": pods.probe("/livez/ping", port, scheme="HTTPS", period_s=10, failures=6),
        },
    ) | {"lifecycle": {"preStop": {"sleep": {"seconds": _ENDPOINTS_S}}}}


def _flags(control_plane: ControlPlane) -> dict[str, str]:
    settings = _settings(control_plane)
    issuer = f"https://kubernetes.default.svc.{control_plane.cluster_domain}"
    found = {
        # The tenant's pods find it there by the Service `default/kubernetes`.
        "advertise-address": "$(POD_IP)",
        "secure-port": str(names.API_SERVER_PORT),
        "service-cluster-ip-range": ",".join(control_plane.service_cidrs),
        # The tenant's cluster IPs lead nowhere from here. It reaches webhooks and aggregated APIs at their
        # pods.
        "enable-aggregator-routing": "true",
        "allow-privileged": "true",
        "profiling": "false",
        "authorization-mode": "Node,RBAC,ABAC",
        "authorization-policy-file": settings.path(_HEALTH_RULES),
        "authentication-config": settings.path(_AUTHENTICATION),
        "enable-admission-plugins": "NodeRestriction",
        "tls-cert-file": _SERVING.path("tls.crt"),
        "tls-private-key-file": _SERVING.path("tls.key"),
        "client-ca-file": _BUNDLES.path(names.CLUSTER_BUNDLE),
        "requestheader-client-ca-file": _BUNDLES.path(names.REQUEST_HEADER_BUNDLE),
        "requestheader-allowed-names": f"{names.FRONT_PROXY_USER},{names.GATEWAY_USER}",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": _FRONT_PROXY.path("tls.crt"),
        "proxy-client-key-file": _FRONT_PROXY.path("tls.key"),
        # vNodes: vn-agent answers in the kubelet's place.
        "kubelet-certificate-authority": _BUNDLES.path(names.KUBELET_SERVING_BUNDLE),
        "kubelet-client-certificate": _KUBELET_CLIENT.path("tls.crt"),
        "kubelet-client-key": _KUBELET_CLIENT.path("tls.key"),
        "kubelet-preferred-address-types": "InternalIP",
        "encryption-provider-config": _ENCRYPTION.path("config.yaml"),
        "encryption-provider-config-automatic-reload": "true",
        "service-account-issuer": issuer,
        "service-account-jwks-uri": f"{issuer}/openid/v1/jwks",
        "shutdown-send-retry-after": "true",
        "goaway-chance": _GOAWAY_CHANCE,
        # Counts of all kinds, and Status calls to etcd, that no scraper asks for.
        "etcd-count-metric-poll-period": "0",
        "etcd-db-metric-poll-interval": "0",
    }
    found |= _account_flags(control_plane)
    if control_plane.emulated_version:
        found["emulated-version"] = f"kube={control_plane.emulated_version}"
    if control_plane.release.audit_policy is not None:
        # The kubelet rotates what it logs.
        found |= {"audit-policy-file": settings.path(_AUDIT), "audit-log-path": "-"}
    return found


def _account_flags(control_plane: ControlPlane) -> dict[str, str]:
    if not has_signer(control_plane):
        key, verified = map(_ACCOUNT_KEY.path, ("signing.pem", "verify.pem"))
        return {"service-account-signing-key-file": key, "service-account-key-file": verified}
    found = {"service-account-signing-endpoint": names.SIGNER_SOCKET}
    emulated = control_plane.emulated_version
    if emulated and int(emulated.split(".")[1]) < _SIGNER_SINCE[1]:
        # Gates have the defaults of the emulated version.
        found["feature-gates"] = "ExternalServiceAccountTokenSigner=true"
    return found


_SOCKET_MOUNT: Object = {"name": "signer-socket", "mountPath": names.SIGNER_SOCKET.rpartition("/")[0]}


def _signer_keys() -> Object:
    return {"secretName": names.SERVICE_ACCOUNT_KEYS, "defaultMode": pods.GROUP_READABLE}


def _signer(control_plane: ControlPlane) -> Object:
    """Signs tokens with keys that the API server never has.

    The API server's own /readyz is 200 without a signer that lives. So this container is probed too: a pod
    that signs no token is not ready. No startupProbe: the API server waits for the signer itself (60 s),
    and the next period of such a probe, a second later, would be a part of each start.
    """
    port = "signer-probe"
    return pods.container(
        _SIGNER,
        control_plane.release.images.signer,
        _SIGNER_SIZE,
        command=[_SIGNER],
        args=[
            *("--keys", names.SIGNER_KEYS_DIRECTORY, "--socket", names.SIGNER_SOCKET),
            *("--probe-port", str(_SIGNER_PROBE_PORT)),
        ],
        mounts=[
            {"name": "signer-keys", "mountPath": names.SIGNER_KEYS_DIRECTORY, "readOnly": True},
            _SOCKET_MOUNT,
        ],
        ports={port: _SIGNER_PROBE_PORT},
        probes={
            "readinessProbe": pods.probe("/readyz", port, scheme="HTTP", period_s=3, failures=2, timeout_s=3),
            "livenessProbe": pods.probe("/livez", port, scheme="HTTP", period_s=10, failures=3),
        },
    )
