# SPDX-License-Identifier: Apache-2.0
"""The Corefile of a network's DNS server: stock CoreDNS 1.12, with that network's Services alone. Pure.

`labels` of the kubernetes plugin takes a Kubernetes label selector (`ParseToLabelSelector`, which refuses
`!=`). It selects Services and their EndpointSlices, which have the Service's labels.

The default network has the Services that name it, and those that name none. No selector has an "or". Nor
does `notin` with the names of all other networks do: a Service may name a network before there is one, and
would be answered until the file has reached the server. So the default network's server asks twice: its
first block has the Services without the label, and passes on what it does not know to a second block on the
loopback. The kubernetes plugin may stand once in a block. `ready` stands beside each: it asks the plugins of
its own block.
"""

from tenancy import keys

LOCAL_PORT = 1053
_REVERSE = ("in-addr.arpa", "ip6.arpa")


def corefile(network: str, domain: str, upstream: tuple[str, ...]) -> str:
    """The file for a network. `upstream` are addresses, or files in the form of resolv.conf."""
    zones = (domain, *_REVERSE)
    if network != keys.DEFAULT_NETWORK:
        plugin = _kubernetes(zones, f"{keys.ARKTOS_NETWORK} in ({network})", _REVERSE)
        lines = [
            *_head(),
            "ready",
            *_rewrites(network, domain),
            *plugin,
            "prometheus :9153",
            *_tail(upstream),
        ]
        return _block((".:53",), lines)
    local = tuple(f"{zone}:{LOCAL_PORT}" for zone in zones)
    unnamed = _kubernetes(zones, f"!{keys.ARKTOS_NETWORK}", zones)
    named = _kubernetes(zones, f"{keys.ARKTOS_NETWORK} in ({network})", _REVERSE)
    passing = ["prometheus :9153", f"forward . 127.0.0.1:{LOCAL_PORT}", "cache 30", "loadbalance"]
    return "\n".join(
        (
            _block(
                tuple(f"{zone}:53" for zone in zones),
                ["errors", "ready", *_rewrites(network, domain), *unnamed, *passing],
            ),
            _block(local, ["errors", "ready", "bind 127.0.0.1", *named, _forward(upstream)]),
            _block((".:53",), [*_head(), "prometheus :9153", *_tail(upstream)]),
        )
    )


def _head() -> list[str]:
    return ["errors", "health {", "    lameduck 5s", "}"]


def _tail(upstream: tuple[str, ...]) -> list[str]:
    return [_forward(upstream), "cache 30", "loop", "reload", "loadbalance"]


def _forward(upstream: tuple[str, ...]) -> str:
    return f"forward . {' '.join(upstream)}"


def _kubernetes(zones: tuple[str, ...], labels: str, passed_on: tuple[str, ...]) -> list[str]:
    return [
        f"kubernetes {' '.join(zones)} {{",
        f"    labels {labels}",
        "    pods insecure",
        f"    fallthrough {' '.join(passed_on)}",
        "    ttl 30",
        "}",
    ]


def _rewrites(network: str, domain: str) -> list[str]:
    """The names of the cluster's own Services lead to this network's, in questions and in answers."""
    found = []
    for name, namespace in (("kube-dns", "kube-system"), ("kubernetes", "default")):
        asked, own = f"{name}.{namespace}.svc.{domain}.", f"{name}-{network}.{namespace}.svc.{domain}."
        found += [
            "rewrite stop {",
            f"    name regex ^{_escaped(asked)}$ {own}",
            f"    answer name ^{_escaped(own)}$ {asked}",
            "}",
        ]
    return found


def _escaped(name: str) -> str:
    return name.replace(".", "\\.")


def _block(keys_: tuple[str, ...], lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in (f"{' '.join(keys_)} {{", *(f"    {each}" for each in lines), "}"))
