# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from vcnode_demo import cheatsheet


@pytest.mark.parametrize(
    ("line", "programs"),
    [
        ("", []),
        ("Ctrl-C takes it all down.", []),
        ("  # acme's log", []),
        ("  curl --unix-socket /s http://localhost/metrics", ["curl"]),
        ("  /clone/.venv/bin/vcnode status --socket /s", ["/clone/.venv/bin/vcnode"]),
        ("  (printf 'POST /exec'; cat) | openssl s_client -quiet", ["printf", "cat", "openssl"]),
        ("  nsenter -t 42 -n nft list ruleset", ["nsenter", "nft"]),
        ("  nsenter -t 42 -n -m getent ahostsv4 db   # acme's", ["nsenter", "getent"]),
    ],
)
def test_programs_of_a_printed_command(line: str, programs: list[str]) -> None:
    assert cheatsheet.programs(line) == programs


def test_command_without_its_program_is_a_comment() -> None:
    line = "  nsenter -t 42 -n nft list ruleset"
    assert cheatsheet.without_missing(line, lambda name: f"/bin/{name}") == line
    found = cheatsheet.without_missing(line, {"nsenter": "/bin/nsenter"}.get)
    assert found == "  # nft is not installed: nsenter -t 42 -n nft list ruleset"


def test_tool_is_the_one_of_the_clone(tmp_path: Path) -> None:
    python = tmp_path / "a clone" / "bin" / "python"
    python.parent.mkdir(parents=True)
    assert cheatsheet.vcnode(str(python)) == f"'{python}' -m vcnode"
    (python.parent / "vcnode").touch()
    assert cheatsheet.vcnode(str(python)) == f"'{python.parent}/vcnode'"
