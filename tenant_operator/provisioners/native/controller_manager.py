# SPDX-License-Identifier: Apache-2.0
"""The tenant's kube-controller-manager.

It needs no key of service accounts: it asks the API server for tokens. Without such a key it makes no tokens
that never expire.
"""

from tenant_operator.model import names, pods
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object
from tenant_operator.model.pods import Files

_GRACE_S = 30
# Of the certificates that a tenant's people approve for themselves.
_SIGNING_DURATION = "8760h"
_KUBECONFIG = Files(
    "Secret", names.CONTROLLER_MANAGER_CLIENT, (names.KUBECONFIG_KEY, "tls.crt", "tls.key", "ca.crt")
)
_SERVING = pods.key_pair(names.CONTROLLER_MANAGER_SERVING)
_SIGNING = pods.key_pair(names.CLUSTER_CA)
_BUNDLE = pods.authorities(names.CLUSTER_BUNDLE)
_FILES = (_KUBECONFIG, _SERVING, _SIGNING, _BUNDLE)
# The files of authorities that it reads once: --root-ca-file and the kubeconfig's.
_DIGEST = f"{names.AUTHORITIES}/{names.CLUSTER_BUNDLE}"
# It reads its certificate again, and the operator cannot ask which it uses: a pod of another template
# does.
_ISSUER = f"{names.CONTROLLER_MANAGER_CLIENT}/{names.ISSUER}"

# The super cluster, vc-syncer and vn-agent do their work for nodes, volumes and load balancers. With the
# minor version of Kubernetes 1 that has each first: a name that a program does not know ends it.
_LEFT_OUT = (
    ("cloud-node-lifecycle-controller", 0),
    ("device-taint-eviction-controller", 33),
    ("ephemeral-volume-controller", 0),
    ("node-ipam-controller", 0),
    ("node-lifecycle-controller", 0),
    ("node-route-controller", 0),
    ("persistentvolume-attach-detach-controller", 0),
    ("persistentvolume-binder-controller", 0),
    ("persistentvolume-expander-controller", 0),
    ("resourceclaim-controller", 0),
    ("service-lb-controller", 0),
    ("storage-version-migrator-controller", 30),
    ("taint-eviction-controller", 29),
    ("ttl-controller", 0),
)


def deployment(control_plane: ControlPlane, inputs: ManifestInputs) -> Object:
    """One at a time works: the old one ends before the new one starts."""
    size = control_plane.size.controller_manager
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": pods.metadata(control_plane, names.CONTROLLER_MANAGER, names.CONTROLLER_MANAGER),
        "spec": {
            "replicas": 0 if control_plane.is_asleep else size.replicas,
            "revisionHistoryLimit": 2,
            # `kubectl rollout pause` would keep its place among those that change for ever.
            "paused": False,
            "selector": pods.selector(names.CONTROLLER_MANAGER),
            # Without an election, two would do the same work at the same time.
            "strategy": {"type": "Recreate"} if size.replicas == 1 else _ROLLING,
            "template": pods.pod_template(
                names.CONTROLLER_MANAGER,
                control_plane,
                containers=[_container(control_plane)],
                volumes=[pods.files_volume(_FILES)],
                grace_seconds=_GRACE_S,
                digest=_digest(inputs),
            ),
        },
    }


def _digest(inputs: ManifestInputs) -> str:
    """The kubeconfig's server is read once, its certificate again: an address restarts the program."""
    found = (inputs.digests.get(each, "") for each in (_DIGEST, _ISSUER))
    return "-".join([*filter(None, found), *inputs.service_addresses])


_ROLLING: Object = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def _container(control_plane: ControlPlane) -> Object:
    release = control_plane.controller_release or control_plane.release
    port = "https"
    return pods.container(
        names.CONTROLLER_MANAGER,
        release.images.controller_manager,
        control_plane.size.controller_manager,
        command=["kube-controller-manager"],
        args=pods.flags(_flags(control_plane) | release.controller_manager_args),
        mounts=[pods.FILES_MOUNT],
        ports={port: names.CONTROLLER_MANAGER_PORT},
        probes={
            "startupProbe": pods.probe("/healthz", port, scheme="HTTPS", period_s=1, failures=120),
            "readinessProbe": pods.probe("/healthz", port, scheme="HTTPS", period_s=10, failures=3),
            "livenessProbe": pods.probe("/healthz", port, scheme="HTTPS", period_s=10, failures=8),
        },
    )


def _flags(control_plane: ControlPlane) -> dict[str, str]:
    release = control_plane.controller_release or control_plane.release
    found = {
        "kubeconfig": _KUBECONFIG.path(names.KUBECONFIG_KEY),
        "controllers": ",".join(controllers(release.version)),
        "use-service-account-credentials": "true",
        "cluster-signing-cert-file": _SIGNING.path("tls.crt"),
        "cluster-signing-key-file": _SIGNING.path("tls.key"),
        "cluster-signing-duration": _SIGNING_DURATION,
        # What the tenant's pods get as kube-root-ca.crt.
        "root-ca-file": _BUNDLE.path(names.CLUSTER_BUNDLE),
        "leader-elect": "true" if control_plane.size.controller_manager.replicas > 1 else "false",
        "secure-port": str(names.CONTROLLER_MANAGER_PORT),
        "tls-cert-file": _SERVING.path("tls.crt"),
        "tls-private-key-file": _SERVING.path("tls.key"),
        "profiling": "false",
    }
    if control_plane.emulated_version and _is_later(release.version, control_plane.emulated_version):
        found["emulated-version"] = f"kube={control_plane.emulated_version}"
    return found


def _is_later(version: tuple[int, int, int], emulated: str) -> bool:
    return version[1] > int(emulated.split(".")[1])


def controllers(version: tuple[int, int, int]) -> list[str]:
    """All that are on by default but those that have nothing to do."""
    return ["*", *(f"-{name}" for name, since in _LEFT_OUT if version[1] >= since)]
