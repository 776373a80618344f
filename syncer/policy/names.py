# SPDX-License-Identifier: Apache-2.0
"""Names of hosts that lead into the super cluster, to a node or to the cloud's metadata. Pure."""

# Of the clouds' metadata services.
_METADATA = frozenset(
    {
        "instance-data.ec2.internal",
        "metadata.google.internal",
        "metadata.goog",
        "metadata.azure.internal",
        "metadata.platformequinix.com",
    }
)
_LOCAL = ("localhost", "localhost.localdomain", "localhost4", "localhost6")


def is_internal(name: str, cluster_domain: str) -> bool:
    """Whether a host's name means something of the super cluster to a program that runs there.

    Search lists complete short names: `kubernetes.default` too. No public domain ends in a label with a
    hyphen or a digit (but for `xn--`), and the super namespaces of tenants have hyphens.
    """
    own = name.lower().rstrip(".")
    labels = own.split(".")
    last = labels[-1]
    if own in _METADATA or own in _LOCAL or last in ("localhost", "svc", "pod", "internal", "local"):
        return True
    if own == cluster_domain or own.endswith("." + cluster_domain):
        return True
    # (An IPv4 address ends in a digit, too.)
    if len(labels) < 2 or last == "default" or (not last.isalpha() and not last.startswith("xn--")):
        return True
    # `a.b.svc.cluster` of the domain `cluster.local`: completed by a search list of its end.
    return "svc" in labels[2:3]
