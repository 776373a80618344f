# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from ruleset.installed.list_parser import read
from ruleset.model import Family

# As nft 1.0.6 prints it.
LISTED = """\
table ip other {
	chain a {
		drop
	}
}
table ip vcnode {
	map endpoints {
		type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
		elements = { 172.30.0.43 . tcp . 80 : 10.1.1.1 . 8080,
@wrapped 172.30.0.42 . sctp . 80 : 10.1.1.1 . 8080 }
	}

	map refusals {
		type ipv4_addr . inet_proto . inet_service : verdict
	}

	set VCN-SEP-AAAA {
		type ipv4_addr
		size 1024
		flags dynamic,timeout
		timeout 3h
		elements = { 10.1.0.2 expires 2h59m58s16ms }
	}

	set service-cidrs {
		type ipv4_addr
		flags interval
		elements = { 172.30.0.0/16 }
	}

	chain VCN-MARK-0123456789abcdef {
	}

	chain nat-output {
		type nat hook output priority -95; policy accept;
		ip daddr . meta l4proto . th dport vmap @services
	}
}
""".replace("@wrapped", "\t\t\t    ")
OBJECTS = {
    "map endpoints": (
        "type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service",
        "172.30.0.42 . sctp . 80 : 10.1.1.1 . 8080",
        "172.30.0.43 . tcp . 80 : 10.1.1.1 . 8080",
    ),
    "map refusals": ("type ipv4_addr . inet_proto . inet_service : verdict",),
    "set VCN-SEP-AAAA": ("type ipv4_addr", "size 1024", "flags dynamic,timeout", "timeout 3h"),
    "set service-cidrs": ("type ipv4_addr", "flags interval", "172.30.0.0/16"),
    "chain VCN-MARK-0123456789abcdef": (),
    "chain nat-output": (
        "type nat hook output priority -95; policy accept;",
        "ip daddr . meta l4proto . th dport vmap @services",
    ),
}


def test_only_our_table_is_read() -> None:
    assert read(LISTED, Family.IPV4) == OBJECTS
    assert read(LISTED, Family.IPV6) == {}
    assert read("", Family.IPV4) == {}


def test_clients_of_affinity_are_not_read() -> None:
    without = LISTED.replace("\t\telements = { 10.1.0.2 expires 2h59m58s16ms }\n", "")
    assert read(without, Family.IPV4) == OBJECTS


def test_added_lines_are_read() -> None:
    more = LISTED.replace("vmap @services\n", "vmap @services\n\t\tcounter packets 0 bytes 0 drop\n")
    assert read(more, Family.IPV4)["chain nat-output"][2] == "counter packets 0 bytes 0 drop"


def test_protocol_numbers_are_read_as_names() -> None:
    """nft looks names up in /etc/protocols, which small guest images lack."""
    rules = (
        "\t\tmeta l4proto tcp dnat ip to 10.0.0.1:8080\n"
        "\t\tmeta l4proto { tcp, udp, sctp } dnat ip to ip daddr . meta l4proto . th dport map @endpoints\n"
        "\t\tmeta l4proto udp dnat ip to numgen random mod 2 map { 0 : 10.0.0.1 . 6, 1 : 10.0.0.2 . 17 }\n"
    )
    named = LISTED.replace("vmap @services\n", f"vmap @services\n{rules}").replace(
        "10.1.1.1 . 8080", "10.1.1.1 . 17"
    )
    alone = "table ip vcnode {\n\tchain a {\n\t\tmeta l4proto { 6, 17, 132 } accept\n\t}\n}\n"
    assert read(alone, Family.IPV4) == {"chain a": ("meta l4proto { tcp, udp, sctp } accept",)}
    numbered = named.replace(" tcp", " 6").replace(" udp", " 17").replace(" sctp", " 132")
    assert numbered != named
    assert read(numbered, Family.IPV4) == read(named, Family.IPV4)
    assert (
        "meta l4proto udp dnat ip to numgen random mod 2 map { 0 : 10.0.0.1 . 6, 1 : 10.0.0.2 . 17 }"
        in (read(numbered, Family.IPV4)["chain nat-output"])
    )


@given(st.text(alphabet="{}\t\n,achinelmts =", max_size=60))
def test_any_text_is_read_without_error(text: str) -> None:
    read(f"table ip vcnode {{\n{text}", Family.IPV4)
