# SPDX-License-Identifier: Apache-2.0
"""Models for tests: one with each kind of rule, and any number of plain Services."""

from collections.abc import Callable, Collection

from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import (
    Endpoint,
    EndpointSet,
    Family,
    Frontend,
    GuestRules,
    NoBackendAction,
    Protocol,
    ServiceRules,
)
from ruleset.names import Backend
from ruleset.render import iptables, nft

RENDERERS = {Backend.IPTABLES: iptables.render, Backend.NFT: nft.render}
TCP, UDP, SCTP = Protocol.TCP, Protocol.UDP, Protocol.SCTP


def ruleset(*documents: Document, generation: int = 1) -> Ruleset:
    return make_ruleset(generation, documents)


def everything(family: Family) -> GuestRules:
    """Each kind of rule once; the golden texts are of this model."""
    ip = _addresses(family)
    one, two, three = (Endpoint(ip(f"10.1.0.{i}", f"fd00:1::{i}"), 8080) for i in (3, 4, 5))
    web = EndpointSet("shop/web:http", TCP, False, (one, two, three))
    sticky = EndpointSet("shop/sticky", TCP, False, (one, two), affinity_s=10800)
    dns = tuple(Endpoint(endpoint.ip, 5353) for endpoint in (one, two))
    cluster_ip = (ip(f"172.30.0.{i}", f"fd00:172::{i}") for i in range(41, 49))
    dns_ip, api_ip, web_ip, sticky_ip, local_ip, none_ip, drop_ip, sctp_ip = cluster_ip
    return GuestRules(
        family,
        (
            _service("a-default/kubernetes", (api_ip, 443, TCP, _to("a-default/kubernetes:https", TCP, one))),
            _service(
                "a-kube-system/kube-dns",
                (dns_ip, 53, UDP, EndpointSet("a-kube-system/kube-dns:dns", UDP, False, dns)),
                (dns_ip, 53, TCP, EndpointSet("a-kube-system/kube-dns:dns-tcp", TCP, False, dns)),
            ),
            _service("shop/dropped", (drop_ip, 80, TCP, NoBackendAction.DROP)),
            _service("shop/local", (local_ip, 80, TCP, EndpointSet("shop/local", TCP, True, (one, two)))),
            _service(
                "shop/nobody",
                (none_ip, 80, TCP, NoBackendAction.REJECT),
                (none_ip, 80, UDP, NoBackendAction.REJECT),
            ),
            _service("shop/signal", (sctp_ip, 3868, SCTP, _to("shop/signal", SCTP, two))),
            _service("shop/sticky", (sticky_ip, 80, TCP, sticky)),
            _service(
                "shop/web",
                (web_ip, 80, TCP, web),
                (ip("10.96.0.7", "fd00:96::7"), 80, TCP, web),
                # Addresses of node ports, which no renderer may write.
                (ip("127.0.0.1", "::1"), 30080, TCP, web),
                (ip("0.0.0.0", "::"), 30080, TCP, web),  # noqa: S104 - nothing listens
            ),
        ),
        (ip("172.30.0.0/16", "fd00:172::/108"),),
    )


def services(
    count: int,
    endpoints: int,
    family: Family = Family.IPV4,
    *,
    fewer: Collection[int] = (),
    refused: Collection[int] = (),
    moved: Collection[int] = (),
    affinity_s: int | None = None,
) -> GuestRules:
    """`count` Services with one port and `endpoints` each; `fewer` have one less, `refused` have none.

    `moved` have another first endpoint.
    """
    ip = _addresses(family)
    made = []
    for i in range(count):
        high, low = divmod(i, 250)
        port = f"ns{i % 7}/svc-{i:04d}:http"
        ends = tuple(
            Endpoint(ip(f"10.{8 + e}.{high}.{low + 1}", f"fd00:10:{high + 1:x}:{low + 1:x}::{e + 1:x}"), 8080)
            for e in range(endpoints - (i in fewer))
        )
        if i in moved:
            ends = (Endpoint(ip("10.7.7.7", "fd00:7::7"), 8080), *ends[1:])
        to = NoBackendAction.REJECT if i in refused else EndpointSet(port, TCP, False, ends, affinity_s)
        vip = ip(f"172.30.{high}.{low + 1}", f"fd00:172::{(high << 8) + low + 1:x}")
        made.append(ServiceRules(port.partition(":")[0], (Frontend(vip, 80, TCP, port, to),)))
    made.sort(key=lambda service: service.service)
    return GuestRules(family, tuple(made), (ip("172.30.0.0/16", "fd00:172::/108"),))


def _addresses(family: Family) -> Callable[[str, str], str]:
    return (lambda _, six: six) if family is Family.IPV6 else (lambda four, _: four)


def _to(service_port: str, protocol: Protocol, *endpoints: Endpoint) -> EndpointSet:
    return EndpointSet(service_port, protocol, False, endpoints)


def _service(name: str, *frontends: tuple[str, int, Protocol, EndpointSet | NoBackendAction]) -> ServiceRules:
    def named(to: EndpointSet | NoBackendAction) -> str:
        return to.service_port if isinstance(to, EndpointSet) else name

    return ServiceRules(
        name, tuple(Frontend(ip, port, proto, named(to), to) for ip, port, proto, to in frontends)
    )
