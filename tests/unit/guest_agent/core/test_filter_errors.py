# SPDX-License-Identifier: Apache-2.0
"""Error texts of iptables 1.8.9 and nft 1.0.6, verbatim, and their meaning."""

import pytest

from guest_agent.core.filter_errors import filter_error, renumber_lines
from guest_agent.core.packet_filter import FilterUnavailableError, RulesRefusedError

TEXT = "*filter\nCOMMIT\n*nat\n:VCN-A - [0:0]\n-A VCN-A -j NOSUCH\nCOMMIT\n"


def error_of(program: str, errors: str, status: int = 1) -> str:
    made = filter_error(program, TEXT, errors, status)
    return f"{type(made).__name__}: {made}"


def test_an_error_of_iptables_shows_its_line() -> None:
    errors = (
        "iptables-restore v1.8.9 (nf_tables): \n"
        "line 5: RULE_APPEND failed (No such file or directory): rule in chain VCN-A"
    )
    assert error_of("iptables-restore", errors) == (
        "RulesRefusedError: iptables-restore: iptables-restore v1.8.9 (nf_tables): line 5: RULE_APPEND failed"
        " (No such file or directory): rule in chain VCN-A; line 5 is '-A VCN-A -j NOSUCH'"
    )


def test_a_syntax_error_shows_its_line() -> None:
    errors = (
        'iptables-restore v1.8.9 (legacy): unknown option "--x"\n'
        "Error occurred at line: 5\nTry `iptables-restore -h'"
    )
    assert error_of("iptables-legacy-restore", errors, 2).endswith("line 5 is '-A VCN-A -j NOSUCH'")


def test_a_refused_commit_names_its_table() -> None:
    assert error_of("iptables-legacy-restore", "iptables-restore: line 6 failed") == (
        "RulesRefusedError: iptables-legacy-restore: iptables-restore: line 6 failed;"
        " the kernel refused the changes of table nat"
    )


def test_an_error_of_nft_shows_its_line() -> None:
    for file in ("/dev/stdin", "/proc/self/fd/9"):
        errors = (
            f"{file}:5:3-9: Error: Could not process rule: No such file or directory\n-A VCN-A\n   ^^^^\n"
        )
        assert error_of("nft", errors) == (
            "RulesRefusedError: nft: 5:3-9: Error: Could not process rule: No such file or directory"
            " -A VCN-A; line 5 is '-A VCN-A -j NOSUCH'"
        )


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        (
            "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\n"
            "Table does not exist (do you need to insmod?)\nError occurred at line: 1",
            "the guest's kernel or its modules lack it",
        ),
        ("iptables/1.8.9 Failed to initialize nft: Protocol not supported", "Protocol not supported"),
        (
            "iptables-restore: Could not fetch rule set generation id: Invalid argument",
            "the guest's kernel lacks nf_tables, which its iptables needs",
        ),
        ("Fatal: can't open lock file /run/xtables.lock: No space left on device", "No space left on device"),
        ("Fatal: can't open lock file /run/xtables.lock: Read-only file system", "Read-only file system"),
        (
            "Error: Could not process rule: Operation not permitted\nadd table",
            "the agent needs CAP_NET_ADMIN",
        ),
        ("", "ended with status 1 without an error message"),
    ],
)
def test_a_missing_feature_is_unavailable_not_refused(errors: str, expected: str) -> None:
    made = filter_error("iptables-restore", TEXT, errors, 1)
    assert isinstance(made, FilterUnavailableError)
    assert expected in str(made)


def test_an_unknown_line_is_shown_empty() -> None:
    assert isinstance(filter_error("p", TEXT, "line 99 failed", 1), RulesRefusedError)
    assert "line 99 is ''" in str(filter_error("p", TEXT, "line 99 failed", 1))


def test_line_numbers_count_from_the_last_script() -> None:
    errors = (
        "iptables-restore v1.8.9 (legacy): Couldn't load target `X':No such file or directory\n\n"
        "Error occurred at line: 2005\nTry `iptables-restore -h'"
    )
    assert renumber_lines(errors, 2000) == errors.replace("2005", "5")
    assert renumber_lines("iptables-restore: line 7 failed", 0) == "iptables-restore: line 7 failed"
    assert renumber_lines("iptables-restore: line 1234 failed", 1000) == "iptables-restore: line 234 failed"
