# SPDX-License-Identifier: Apache-2.0
"""The harness notices every fault of an agent that does everything wrong, and every unknown word."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases.case_file import RequestCase, load
from tests.cases.daemon import ROOT
from tests.cases.runner import Runner

BASE_FILE = ROOT / "tests" / "cases" / "more.yaml"
LOGS = "GET /containerLogs/web/bank/app HTTP/1.1"
OWN = "GET /containerLogs/ten-a-web/shop/app HTTP/1.1"
EXEC = "POST /exec/ten-a-web/shop/app?command=cat&input=1&output=1 HTTP/1.1"
UPGRADE = [
    "Host: n",
    "Connection: Upgrade",
    "Upgrade: SPDY/3.1",
    "X-Stream-Protocol-Version: v4.channel.k8s.io",
]


def write(path: Path, *cases: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump({"cases": list(cases)}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    directory = tmp_path_factory.mktemp("faulty")
    file = load(write(directory / "cases.yaml"), BASE_FILE)
    runner = Runner(file, directory / "work", module="tests.functional.cases.faulty_agent")
    yield runner
    runner.close()


def failures(runner: Runner, directory: Path, **raw: Any) -> str:
    """The harness's failures for one case."""
    raw = {"id": "it", "identity": "ten_a"} | raw
    (case,) = load(write(directory / "case.yaml", raw), BASE_FILE).cases
    return "\n".join(runner.run_case(case).failures)


def request(line: str, *headers: str) -> dict[str, Any]:
    return {"line": line, "headers": list(headers or ("Host: n",))}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            {"identity": "none", "request": request("GET /pods HTTP/1.1"), "expect": {"tls": "fail"}},
            "TLS should fail",
        ),
        ({"request": request(OWN), "expect": {"status": [404]}}, "status 200, not 404"),
        ({"request": request(OWN), "expect": {"status": [200], "upstream": 0}}, "saw 1 requests, not 0"),
        ({"request": request(OWN), "expect": {"path": "/x"}}, "the kubelet saw /containerLogs/ten-a-web"),
        ({"request": request(OWN), "expect": {"after": "close"}}, "should be closed"),
        ({"request": request(OWN), "must_contain": ["nowhere"]}, "did not receive 'nowhere'"),
        ({"request": request(OWN), "must_not_contain": ["SHOP"]}, "the client received 'SHOP'"),
        ({"request": request(OWN), "path_must_not_contain": ["shop"]}, "the path at the kubelet has"),
        (
            {"request": request(OWN, "Host: n", "X-A: secret"), "upstream_must_not_contain": ["secret"]},
            "the kubelet received 'secret'",
        ),
        ({"request": request(LOGS), "expect": {"status": [200]}}, "I1: 'ten-b-web' reached ten-a"),
        ({"request": request(LOGS), "expect": {}}, "I2: the agent builds no such path"),
        ({"request": request(OWN), "expect": {}}, "I3: a parallel request of ten-b took"),
        ({"request": request(LOGS), "expect": {"hold": ["I4"]}}, "I4: /containerLogs/web/bank/app gives"),
        (
            {
                "request": request(EXEC, *UPGRADE),
                "upstream": {"status": 403, "body": "no"},
                "then": [{"send": "GET /configz HTTP/1.1\r\nHost: x\r\n\r\n"}],
                "expect": {"hold": ["I5"]},
            },
            "bytes followed the upgrade upstream",
        ),
        (
            {"request": request(OWN, "Host: n", "Impersonate-User: x"), "expect": {"hold": ["I6"]}},
            "I6: the kubelet received Impersonate-User",
        ),
        ({"request": request(OWN, "Host: n", "Host: m"), "expect": {"hold": ["I7"]}}, "I7: 2 Host lines"),
        (
            {"request": request(OWN), "repeat": 20, "expect": {"upstream_max": 20, "hold": ["I8"]}},
            "I8: memory grew",
        ),
        ({"request": request(OWN), "repeat": 40, "expect": {"upstream_max": 40, "hold": ["I9"]}}, "I9: "),
        (
            {"request": request(OWN), "expect": {"upstream_max": 5}, "repeat": 7},
            "saw 7 requests, more than 5",
        ),
        ({"request": request(OWN), "expect": {"hold": ["I10"]}}, "I10: no audit line"),
        (
            {
                "request": request(OWN.replace("app ", "app?follow=true ")),
                "upstream": {"status": 200, "then": "silent"},
                "then": [{"close": True}],
                "expect": {"hold": ["I11"]},
            },
            "I11: the upstream connection is open",
        ),
        ({"request": request(EXEC, *UPGRADE), "expect": {"hold": ["I12"]}}, "I12: after"),
        (
            {"request": request(EXEC, *UPGRADE), "upstream": {"echo": True}, "expect": {"hold": ["I13"]}},
            "I13: the kubelet sent",
        ),
        (
            {
                "request": request(EXEC, *UPGRADE),
                "upstream": {"status": 101, "send_mib": 1, "then": "close"},
                "expect": {"hold": ["I13"]},
            },
            "I13: the kubelet sent",
        ),
        ({"request": request("GET /pods HTTP/1.1"), "expect": {"hold": ["I14"]}}, "I14: "),
        (
            {
                "request": request("GET /pods HTTP/1.1"),
                "upstream": {
                    "raw": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
                },
                "expect": {"hold": ["I14"]},
            },
            "I14: the page is cut after 1 bytes",
        ),
        (
            {"request": request(OWN, "Host: n", "X-A: 1"), "expect": {"upstream_headers": {"X-A": ["2"]}}},
            "the kubelet saw X-A: ['1'], not ['2']",
        ),
        (
            {
                "request": request(f"{OWN.split(' H')[0]}?tailLines=1 HTTP/1.1"),
                "expect": {"decoded_query": {"x": ["1"]}},
            },
            "read the query as",
        ),
    ],
)
def test_each_fault_is_noticed(faulty: Runner, tmp_path: Path, raw: dict[str, Any], expected: str) -> None:
    assert expected in failures(faulty, tmp_path, **raw)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"colour": "red"}, "the key 'colour'"),
        ({"identity": "nobody"}, "the identity 'nobody'"),
        ({"config": {"colour": 1}}, "config.colour"),
        ({"transport": "udp"}, "the transport 'udp'"),
        ({"upstream": {"colour": 1}}, "upstream.colour"),
        ({"upstream": {"status": 200, "then": "dance"}}, "upstream.then: 'dance'"),
        ({"upstream": {"page": "PodList with purple pods"}}, "'purple' of the page"),
        ({"upstream": {"page": "unicorns"}}, "'unicorns' of the page"),
        ({"then": [{"dance": 1}]}, "the step"),
        ({"then": [{"frame": "a purple frame"}]}, "the frame"),
        ({"then": [{"admin": "paint the kubelet"}]}, "of the admin step"),
        ({"before": [{"admin": "delete super pod s-1001, dance"}]}, "'dance' of the admin step"),
        ({"expect": {"colour": 1}}, "expect.colour"),
        ({"expect": {"hold": ["I99"]}}, "the invariant I99"),
        ({"expect": {"after": "dance"}}, "after: 'dance'"),
        ({"request": {"line": "GET / HTTP/1.1", "colour": 1}}, "the request key 'colour'"),
        ({"request": {"line": "GET / HTTP/1.1", "expand": "much"}}, "expand: 'much'"),
    ],
)
def test_unknown_words_fail_their_case(
    faulty: Runner, tmp_path: Path, raw: dict[str, Any], expected: str
) -> None:
    message = failures(faulty, tmp_path, **({"request": request("GET /pods HTTP/1.1")} | raw))
    assert "harness does not know" in message
    assert expected in message


def test_an_error_of_the_harness_fails_its_case(
    faulty: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> list[str]:
        raise ArithmeticError("a bug of the harness")

    monkeypatch.setattr("tests.cases.runner.check_expectations", broken)
    assert "ArithmeticError: a bug of the harness" in failures(faulty, tmp_path, request=request(OWN))


def test_a_case_with_an_optional_part_needs_an_otherwise(faulty: Runner, tmp_path: Path) -> None:
    message = failures(faulty, tmp_path, request=request("GET /pods HTTP/1.1"), config={"sni": True})
    assert "otherwise" in message


def test_the_same_cases_hold_for_the_real_agent(tmp_path: Path) -> None:
    """The failures above are the agent's doing, not the harness'."""
    cases: tuple[RequestCase, ...] = load(
        write(
            tmp_path / "cases.yaml",
            {
                "id": "refused",
                "identity": "none",
                "request": request("GET /pods HTTP/1.1"),
                "expect": {"tls": "fail"},
            },
            {
                "id": "foreign",
                "identity": "ten_a",
                "request": request(LOGS),
                "expect": {"status": [404], "upstream": 0, "hold": ["I4", "I8", "I9", "I10", "I12"]},
            },
            {
                "id": "tunnel",
                "identity": "ten_a",
                "request": request(EXEC.replace("ten-a-web", "web"), *UPGRADE),
                "upstream": {"echo": True},
                "expect": {"status": [101], "upstream": 1, "hold": ["I6", "I7", "I11", "I12", "I13"]},
            },
            {
                "id": "page",
                "identity": "ten_a",
                "request": request("GET /pods HTTP/1.1"),
                "expect": {"status": [200], "hold": ["I14"]},
            },
        ),
        BASE_FILE,
    ).cases
    runner = Runner(load(tmp_path / "cases.yaml", BASE_FILE), tmp_path / "work")
    try:
        assert {case.id: runner.run_case(case).failures for case in cases} == {case.id: () for case in cases}
    finally:
        runner.close()
