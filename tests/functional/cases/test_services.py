# SPDX-License-Identifier: Apache-2.0
"""The runner of the service cases notices wrong rules and unknown words."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeproxy_ext.compute.stale_flows import StaleFlow
from ruleset.model import Endpoint, Protocol
from ruleset.names import Backend
from ruletrace.packet import PacketVerdict
from tests.cases.__main__ import main
from tests.cases.daemon import ROOT
from tests.cases.services import evaluations, kernel_probes, rendering, sctp
from tests.cases.services.case_file import CaseFile
from tests.cases.services.entries import KernelEntry, is_stale
from tests.cases.services.load import MORE, SHARED, ServiceFileError, is_service_file, load, read
from tests.cases.services.packet_checks import checks_of_flow
from tests.cases.services.rendering import RenderedGuest
from tests.cases.services.runner import Runner

FLOW = {
    "id": "F",
    "services": [
        {"svc": "ns/two", "vip": ["172.30.0.41"], "ports": [{"name": "p", "port": 80}]},
        {"svc": "ns/none", "vip": ["172.30.0.42"], "ports": [{"name": "p", "port": 80}]},
    ],
    "slices": [
        {
            "svc": "ns/two",
            "ports": [{"name": "p", "port": 8080}],
            "eps": [{"ip": "10.1.0.3"}, {"ip": "10.1.0.4"}],
        }
    ],
    "checks": [
        ["two", "10.0.0.2", "TCP", "172.30.0.41", 80, ["10.1.0.3:8080", "10.1.0.4:8080"], False],
        ["none", "10.0.0.2", "TCP", "172.30.0.42", 80, "reject", False],
        ["other", "10.0.0.2", "TCP", "172.30.0.43", 80, "pass", False],
    ],
}
WORLD = {"pod_cidr": "10.0.0.0/8", "service_cidr": "172.30.0.0/16", "node_ips": ["192.168.0.2"]}


def written(path: Path, **sections: Any) -> Path:
    path.write_text(yaml.safe_dump({"world": WORLD, **sections}), encoding="utf-8")
    return path


def failures(path: Path) -> str:
    """The runner's failures without a kernel."""
    runner = Runner(read(path), lambda _: None, with_kernel=False)
    return "\n".join(failure for result in runner.run() for failure in result.failures)


def flow(**changes: Any) -> dict[str, Any]:
    return {**FLOW, **changes}


def test_correct_rules_pass_every_engine(tmp_path: Path) -> None:
    assert failures(written(tmp_path / "it.yaml", flows=[FLOW])) == ""


@pytest.mark.parametrize(
    ("backend", "old", "new", "expected"),
    [
        (
            *(Backend.IPTABLES, "-p tcp -j DNAT --to-destination 10.1.0.4:8080", "-p tcp -j RETURN"),
            "iptables text: two: 10.1.0.3:8080, pass, not 10.1.0.3:8080, 10.1.0.4:8080",
        ),
        (
            *(Backend.IPTABLES, "0.5000000000", "0.4000000000"),
            "iptables text: two: chances 10.1.0.3:8080 0.4000, 10.1.0.4:8080 0.6000, not 10.1.0.3:8080",
        ),
        (
            *(Backend.IPTABLES, "-A OUTPUT -j VCN-SERVICES\n", ""),
            "nat VCN-SERVICES: declared, and no rule jumps to it",
        ),
        (*(Backend.IPTABLES, "--dport 80 -j VCN-SVC", "--dport 81 -j VCN-SVC"), "two: pass, not"),
        (*(Backend.IPTABLES, "-j REJECT", "-j DROP"), "iptables text: none: drop, not reject"),
        (
            *(Backend.IPTABLES, "-d 172.30.0.0/16", "-d 172.30.0.0/24"),
            None,  # both contain the questions
        ),
        (
            *(Backend.IPTABLES, "-d 172.30.0.0/16", "-d 172.31.0.0/16"),
            "with the catch-all: iptables text: other: pass",
        ),
        (*(Backend.NFT, "mod 2 map", "mod 3 map"), "nft text: two: 10.1.0.3:8080, 10.1.0.4:8080, pass, not"),
        (
            *(Backend.NFT, "1 : 10.1.0.4 . 8080", "1 : 10.1.0.4 . 8081"),
            "nft text: two: 10.1.0.3:8080, 10.1.0.4:8081",
        ),
        (*(Backend.NFT, "goto refuse", "drop"), "nft text: none: drop, not reject"),
        (*(Backend.NFT, "172.30.0.41 . tcp", "172.30.0.41 . udp"), "nft text: two: pass, not"),
    ],
)
def test_wrong_rules_fail_every_engine(
    backend: Backend,
    old: str,
    new: str,
    expected: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def spoilt(data: bytes, guest: RenderedGuest, requested: Backend) -> str:
        text = rendering.text_for(data, guest, requested)
        if requested is not backend:
            return text
        assert old in text or (guest.service_cidrs == () and "172.30.0.0" in old)
        return text.replace(old, new)

    monkeypatch.setattr(evaluations, "text_for", spoilt)
    message = failures(written(tmp_path / "it.yaml", flows=[FLOW]))
    assert message == "" if expected is None else expected in message


def test_wrong_case_file_fails_every_engine(tmp_path: Path) -> None:
    wrong = flow(checks=[["two", "10.0.0.2", "TCP", "172.30.0.41", 80, ["10.1.0.3:8080"], False]])
    message = failures(written(tmp_path / "it.yaml", flows=[wrong]))
    for engine in ("model", "iptables text", "nft text"):
        assert f"{engine}: two: 10.1.0.3:8080, 10.1.0.4:8080, not 10.1.0.3:8080" in message


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"flows": [flow(colour="red")]}, "unknown keys ['colour']"),
        ({"flows": [flow(config={"colour": "red"})]}, "the runner does not know the config ['colour']"),
        ({"flows": [flow(services=[{"svc": "a/b", "colour": "red"}])]}, "unknown keys ['colour']"),
        (
            {"flows": [flow(slices=[{"svc": "a/b", "eps": [{"ip": "::1", "colour": 1}]}])]},
            "unknown keys ['colour']",
        ),
        (
            {"flows": [flow(checks=[["x", "10.0.0.2", "TCP", "1.1.1.1", 80, "dance", False]])]},
            "expectation 'dance'",
        ),
        (
            {"flows": [flow(checks=[["x", "10.0.0.2", "ICMP", "1.1.1.1", 80, "pass", False]])]},
            "the protocol 'icmp'",
        ),
        ({"flows": [flow(checks=[["x", "10.0.0.2"]])]}, "not enough values"),
        ({"guest": [{"id": "G", "run": {**FLOW, "how": "dance"}}]}, "unknown keys ['id']"),
        ({"guest": [{"id": "G", "run": {"how": "dance", "checks": []}}]}, "does not know how: 'dance'"),
        ({"sync": [{"id": "S", "steps": [{"do": "dance"}]}]}, "does not know how to do 'dance'"),
        ({"sync": [{"id": "S", "steps": [{"do": "next sync", "colour": 1}]}]}, "does not know ['colour']"),
        ({"sync": [{"id": "S", "rule": "dance"}]}, "does not know the rule 'dance'"),
        ({"slice_rules": [{"why": "dance", "effect": "none"}]}, "does not know the slice rule 'dance'"),
        ({"flows": [], "colours": []}, "an unknown section"),
    ],
)
def test_unknown_words_fail_their_case(sections: dict[str, Any], expected: str, tmp_path: Path) -> None:
    path = written(tmp_path / "it.yaml", **sections)
    assert expected in failures(path)


def test_reader_refuses_cases_that_the_runner_refuses(tmp_path: Path) -> None:
    with pytest.raises(ServiceFileError, match="colour"):
        load(written(tmp_path / "it.yaml", flows=[flow(colour="red")]))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"flows": []}, True),
        ({"guest": []}, True),
        ({"cases": [], "fixtures": {}}, False),
        ({}, False),
        ([], False),
    ],
)
def test_service_file_is_recognised(document: object, expected: bool) -> None:
    assert is_service_file(document) is expected


def test_checks_outside_guests_are_skipped_and_counted(tmp_path: Path) -> None:
    file = read(
        written(
            tmp_path / "it.yaml",
            flows=[
                flow(
                    services=[
                        {"svc": "a/s", "type": "NodePort", "vip": ["172.30.0.41"], "health_port": 3002}
                        | {"ports": [{"name": "p", "port": 80, "node_port": 3001}]}
                    ],
                    checks=[
                        ["node", "192.168.0.2", "TCP", "172.30.0.41", 80, "reject", True],
                        ["loopback", "127.0.0.1", "TCP", "127.0.0.1", 3001, "reject", True],
                        ["outside", "203.0.113.2", "TCP", "172.30.0.41", 80, "reject", False],
                        ["node port", "10.0.0.2", "TCP", "192.168.0.2", 3001, "reject", False],
                        ["another protocol's", "10.0.0.2", "UDP", "192.168.0.2", 3001, "pass", False],
                        ["health", "10.0.0.3", "TCP", "192.168.0.2", 3002, "accept", False],
                        ["hairpin", "10.1.0.3", "TCP", "172.30.0.41", 80, ["10.1.0.3:8080"], True],
                    ],
                )
            ],
        )
    )
    guest_checks = checks_of_flow(file.flows[0].checks, file.flows[0].state, file.node_origin)
    assert guest_checks.left_out == {"from the node": 2, "from outside": 1}
    assert {
        (packet_check.name, pod): packet_check.expected
        for pod, packet_checks in guest_checks.packet_checks.items()
        for packet_check in packet_checks
    } == {
        ("node port", "10.0.0.2"): {PacketVerdict.PASS},
        ("another protocol's", "10.0.0.2"): {PacketVerdict.PASS},
        ("health", "10.0.0.3"): {PacketVerdict.PASS},
        ("hairpin", "10.1.0.3"): {Endpoint("10.1.0.3", 8080)},
    }


def test_sctp_init_has_a_valid_checksum() -> None:
    """The check value of CRC-32C, and the ports of an INIT; a kernel drops what it finds malformed."""
    assert sctp.crc32c(b"123456789") == 0xE3069283
    packet = sctp.init(32000, 80)
    assert (len(packet), sctp.ports(packet)) == (32, (32000, 80))
    assert sctp.ports(packet[:12]) is None
    assert sctp.ports(packet[:12] + b"\x00" + packet[13:]) is None


@pytest.mark.parametrize(
    ("entry", "flow_", "expected"),
    [
        (("udp", "10.1.0.3", 5353, True), StaleFlow(Protocol.UDP, "172.30.0.41", 53), True),
        (("tcp", "10.1.0.3", 5353, True), StaleFlow(Protocol.UDP, "172.30.0.41", 53), False),
        (("udp", "10.1.0.3", 5353, True), StaleFlow(Protocol.UDP, "172.30.0.41", 54), False),
        (
            ("udp", "10.1.0.3", 5353, True),
            StaleFlow(Protocol.UDP, "172.30.0.41", 53, keep_replies_from=("10.1.0.3:5353",)),
            False,
        ),
        (
            ("udp", "10.1.0.3", 5354, True),
            StaleFlow(Protocol.UDP, "172.30.0.41", 53, keep_replies_from=("10.1.0.3:5353",)),
            True,
        ),
        (
            ("udp", "10.1.0.3", 5353, True),
            StaleFlow(Protocol.UDP, "172.30.0.41", 53, reply_source="10.1.0.4"),
            False,
        ),
        (
            ("tcp", "172.30.0.41", 53, False),
            StaleFlow(Protocol.TCP, "172.30.0.41", 53, never_translated=True),
            True,
        ),
        (
            ("tcp", "172.30.0.41", 53, True),
            StaleFlow(Protocol.TCP, "172.30.0.41", 53, never_translated=True),
            False,
        ),
    ],
)
def test_which_entries_are_stale(entry: tuple[str, str, int, bool], flow_: StaleFlow, expected: bool) -> None:
    protocol, source, port, has_reply = entry
    kernel_entry = KernelEntry(protocol, "172.30.0.41", 53, source, port, has_reply=has_reply)
    assert is_stale(kernel_entry, [flow_]) is expected


def test_number_of_packets_for_a_set_of_endpoints() -> None:
    """The union bound over one endpoint more than there should be."""
    for endpoints in (1, 2, 3, 10, 50):
        packets, possible = kernel_probes.times(endpoints), endpoints + 1
        assert possible * (1 - 1 / possible) ** packets <= kernel_probes.MISSED
        assert possible * (1 - 1 / possible) ** (packets - 1) > kernel_probes.MISSED


def test_render_command_prints_the_rules_of_the_runner(tmp_path: Path) -> None:
    """One group through `python -m kubeproxy_ext render`, as other programs do."""
    file = read(written(tmp_path / "it.yaml", flows=[FLOW]))
    data = rendering.objects_list(file.flows[0].state, "test-node")
    guest = RenderedGuest("10.0.0.2", "test-node", service_cidrs=("172.30.0.0/16",))
    for backend in Backend:
        done = subprocess.run(
            [sys.executable, "-m", "kubeproxy_ext", "render", *guest.arguments(backend)],
            input=data,
            capture_output=True,
            cwd=ROOT,
            timeout=60,
            check=True,
        )
        assert done.stdout.decode() == rendering.text_for(data, guest, backend)


@pytest.mark.parametrize("path", [SHARED, MORE], ids=lambda path: str(path.name))
def test_every_group_agrees_without_a_kernel(path: Path) -> None:
    """Live kernels are the lab ring's; the evaluations without root run here."""
    if not path.exists():
        pytest.skip(f"{path} does not exist beside this clone")
    file: CaseFile = read(path)
    runner = Runner(file, lambda _: None, with_kernel=False)
    results = list(runner.run())
    assert [(result.case.id, result.failures) for result in results if result.failures] == []
    assert sum(result.has_passed for result in results) >= 25


def test_command_prints_failures_and_omissions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = written(tmp_path / "right.yaml", flows=[{**FLOW, "id": "F1"}, {**FLOW, "id": "F2"}])
    wrong = written(tmp_path / "wrong.yaml", flows=[flow(id="W", colour=1)])
    assert main([str(right), str(wrong), "--only", "^(F2|W)$", "--failed-only"]) == 1
    output = capsys.readouterr().out.splitlines()
    assert [line for line in output if "live" not in line] == [
        "FAIL W (0.0 s)",
        "       W: unknown keys ['colour']",
        "LEFT OUT: 1 cases by --only '^(F2|W)$'",
        "NOT COMPLETE: the lines above were not run; with --require-all they fail",
        "1 passed, 1 failed",
    ]


def test_file_of_unknown_shape_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(written(tmp_path / "it.yaml", colours=[1]))]) == 2
    assert "it.yaml" in capsys.readouterr().err
