# SPDX-License-Identifier: Apache-2.0
"""The demo's DNS server and its DNS client, as processes on loopback."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.vcnode.json_program import DEADLINE_S, JsonProgram
from vcnode.core.dns_message import RecordType
from vcnode.dns_query import ask_all
from vcnode_demo import dns_program


@pytest.fixture
def program() -> Iterator[JsonProgram]:
    made = JsonProgram(dns_program, "a server")
    yield made
    made.close()


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
    return port


def test_it_serves_names_and_ends_with_its_input(program: JsonProgram) -> None:
    port = _free_port()
    assert program.call("up") == {}
    assert program.call("names", "127.0.0.1", {"db.web": "10.0.0.31"}, "", port) == {}
    found = ask_all(("db", "db.web"), RecordType.A, ("127.0.0.1",), None, port)
    assert [each.answer.code for each in found if each.answer is not None] == ["NXDOMAIN", "NOERROR"]
    assert program.call("asked") == {"names": ["db", "db.web"]}
    assert program.close() == 0


def test_it_resolves_by_the_c_library(program: JsonProgram) -> None:
    found = program.call("lookup", "localhost")
    assert (found["addresses"], found["error"]) == (["127.0.0.1"], "")
    assert found["s"] >= 0
    # An invalid name, so that no server gets a query.
    unresolved = program.call("lookup", "nobody..invalid")
    assert unresolved["addresses"] == []
    assert unresolved["error"]
    followed = program.call("follow", "localhost", "127.0.0.1", DEADLINE_S)
    assert (followed["addresses"], followed["at"] > 0) == (["127.0.0.1"], True)
    assert program.call("follow", "localhost", "192.0.2.1", 0.05)["addresses"] == ["127.0.0.1"]


def test_it_reads_files_of_its_own_mounts(program: JsonProgram, tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("nameserver 10.0.0.53\n")
    assert program.call("read", str(tmp_path / "resolv.conf")) == {"text": "nameserver 10.0.0.53\n"}
