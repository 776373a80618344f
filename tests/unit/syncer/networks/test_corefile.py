# SPDX-License-Identifier: Apache-2.0
from syncer.networks.corefile import corefile

BLUE = r"""
.:53 {
    errors
    health {
        lameduck 5s
    }
    ready
    rewrite stop {
        name regex ^kube-dns\.kube-system\.svc\.b\.example\.$ kube-dns-blue.kube-system.svc.b.example.
        answer name ^kube-dns-blue\.kube-system\.svc\.b\.example\.$ kube-dns.kube-system.svc.b.example.
    }
    rewrite stop {
        name regex ^kubernetes\.default\.svc\.b\.example\.$ kubernetes-blue.default.svc.b.example.
        answer name ^kubernetes-blue\.default\.svc\.b\.example\.$ kubernetes.default.svc.b.example.
    }
    kubernetes b.example in-addr.arpa ip6.arpa {
        labels arktos.futurewei.com/network in (blue)
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus :9153
    forward . 192.0.2.53 192.0.2.54
    cache 30
    loop
    reload
    loadbalance
}
"""

DEFAULT = r"""
t1.example:53 in-addr.arpa:53 ip6.arpa:53 {
    errors
    ready
    rewrite stop {
        name regex ^kube-dns\.kube-system\.svc\.t1\.example\.$ kube-dns-default.kube-system.svc.t1.example.
        answer name ^kube-dns-default\.kube-system\.svc\.t1\.example\.$ kube-dns.kube-system.svc.t1.example.
    }
    rewrite stop {
        name regex ^kubernetes\.default\.svc\.t1\.example\.$ kubernetes-default.default.svc.t1.example.
        answer name ^kubernetes-default\.default\.svc\.t1\.example\.$ kubernetes.default.svc.t1.example.
    }
    kubernetes t1.example in-addr.arpa ip6.arpa {
        labels !arktos.futurewei.com/network
        pods insecure
        fallthrough t1.example in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus :9153
    forward . 127.0.0.1:1053
    cache 30
    loadbalance
}

t1.example:1053 in-addr.arpa:1053 ip6.arpa:1053 {
    errors
    ready
    bind 127.0.0.1
    kubernetes t1.example in-addr.arpa ip6.arpa {
        labels arktos.futurewei.com/network in (default)
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    forward . /etc/resolv.conf
}

.:53 {
    errors
    health {
        lameduck 5s
    }
    prometheus :9153
    forward . /etc/resolv.conf
    cache 30
    loop
    reload
    loadbalance
}
"""


def test_a_network_has_the_services_that_name_it() -> None:
    assert "\n" + corefile("blue", "b.example", ("192.0.2.53", "192.0.2.54")) == BLUE


def test_the_default_network_has_those_that_name_none_too() -> None:
    assert "\n" + corefile("default", "t1.example", ("/etc/resolv.conf",)) == DEFAULT
