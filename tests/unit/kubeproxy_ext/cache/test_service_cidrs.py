# SPDX-License-Identifier: Apache-2.0
from kubeproxy_ext.cache.object_cache import ObjectCache
from kubeproxy_ext.cache.service_cidrs import ServiceCidrs
from kubeproxy_ext.compute.objects import Meta, NamespaceObject
from kubeproxy_ext.compute.service_state import ServiceState
from tenancy import keys

RANGES = ServiceCidrs(("10.96.0.0/12", "fd00::/108"), {"b": ("172.20.0.0/16",)})


def cache(**roots: dict[str, str]) -> ObjectCache:
    made = ObjectCache(ServiceState(), 0.0)
    for name, annotations in roots.items():
        made.put_namespace(NamespaceObject(Meta(name=name, annotations=annotations)))
    return made


def test_super_cluster_and_configured_cidrs_are_joined() -> None:
    assert RANGES.of("a", cache()) == ("10.96.0.0/12", "fd00::/108")
    assert RANGES.of("b", cache()) == ("10.96.0.0/12", "172.20.0.0/16", "fd00::/108")


def test_root_namespace_annotation_is_read() -> None:
    root = {keys.VC_ROOT_NAMESPACE: "true", keys.SERVICE_CIDRS: "172.21.0.1/16, fd01::/108,odd,"}
    known = cache(a=root, b=root)
    assert RANGES.of("a", known) == ("10.96.0.0/12", "172.21.0.0/16", "fd00::/108", "fd01::/108")
    # The operator's configuration has precedence.
    assert "172.21.0.0/16" not in RANGES.of("b", known)
    assert "172.21.0.0/16" not in RANGES.of("c", known)


def test_annotation_on_other_namespaces_is_ignored() -> None:
    mark = {keys.SERVICE_CIDRS: "0.0.0.0/0"}
    assert RANGES.of("a", cache(a=mark)) == ("10.96.0.0/12", "fd00::/108")
    brought_down = mark | {keys.CLUSTER: "x", keys.VC_ROOT_NAMESPACE: "true"}
    assert RANGES.of("a", cache(a=brought_down)) == ("10.96.0.0/12", "fd00::/108")


def test_number_of_annotated_cidrs_is_limited() -> None:
    many = ",".join(f"172.{number}.0.0/16" for number in range(100))
    root = {keys.VC_ROOT_NAMESPACE: "true", keys.SERVICE_CIDRS: many}
    assert len(RANGES.of("a", cache(a=root))) == 2 + 8
