# SPDX-License-Identifier: Apache-2.0
"""Man pages and completions, as packaging/documents.py writes them for the packages."""

import gzip
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_vc.arguments import VERBS
from tests.reference.commands import DAEMONS, helps

SOURCE = Path(__file__).resolve().parents[3]
PROGRAMS = (*DAEMONS, "vcnode")
PAGES = (*PROGRAMS, "vcnode-guest-agent", "vc-signer", "kubectl-vc")
# Its page is another's.
LINK = "kubectl_complete-vc"
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def write(target: Path, *, hash_seed: str = "0") -> Path:
    """Run the script as packages.py does."""
    fixed = {"SOURCE_DATE_EPOCH": "1700000000", "PYTHONHASHSEED": hash_seed}
    environment = os.environ | fixed  # noqa: TID251 - a child's, with two more
    script = SOURCE / "packaging/documents.py"
    subprocess.run([sys.executable, str(script), str(target)], check=True, env=environment)
    return target


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, below a root."""
    return write(tmp_path_factory.mktemp("documents"))


def page(documents: Path, program: str) -> str:
    """The page's source without fonts, with hyphens and quotes as they are read."""
    text = gzip.decompress((documents / f"usr/share/man/man8/{program}.8.gz").read_bytes()).decode()
    return re.sub(r"\\f[BIR]|\\[,/]", "", text.replace("\\-", "-").replace("\\(aq", "'"))


def options_by_program() -> Iterator[tuple[str, str]]:
    """Each program's or verb's help has options: those that its page must have."""
    for name, text in helps():
        programs = DAEMONS if name.startswith("vn-agent,") else (name.split()[0],)
        if name != "vcnode demo":
            for program in programs:
                # A long one that a sentence mentions is broken at a hyphen.
                options = (each for each in _OPTION.findall(text) if not each.endswith("-"))
                yield from ((program, option) for option in sorted(set(options)))


def test_each_program_has_a_page_and_completions(documents: Path) -> None:
    places = sorted(str(path.relative_to(documents)) for path in documents.rglob("*") if path.is_file())
    assert places == sorted(
        [
            *(f"usr/share/man/man8/{each}.8.gz" for each in (*PAGES, LINK)),
            *(f"usr/share/bash-completion/completions/{each}" for each in PROGRAMS),
            *(f"usr/share/zsh/vendor-completions/_{each}" for each in PROGRAMS),
            *(f"usr/share/fish/vendor_completions.d/{each}.fish" for each in PROGRAMS),
        ]
    )


def test_every_option_of_every_parser_is_in_its_page(documents: Path) -> None:
    wanted = list(options_by_program())
    assert {program for program, _ in wanted} == set(PAGES)
    found = {program: set(_OPTION.findall(page(documents, program))) for program in PAGES}
    assert [each for each in wanted if each[1] != "--help" and each[1] not in found[each[0]]] == []


def test_every_verb_has_a_section_in_the_tools_page(documents: Path) -> None:
    text = page(documents, "vcnode")
    verbs = [name for name, _ in helps() if name.startswith("vcnode ") and name != "vcnode demo"]
    assert {"vcnode explain dns", "vcnode tenant add", "vcnode init"} <= set(verbs)
    assert [verb for verb in verbs if f".SS {verb}\n" not in text] == []
    assert "demo" not in text  # it runs from a clone only


def test_every_verb_has_a_section_in_the_plugins_page(documents: Path) -> None:
    text = page(documents, "kubectl-vc")
    assert [verb for verb in VERBS if f".SS kubectl-vc {verb}\n" not in text] == []
    assert page(documents, LINK) == ".so man8/kubectl-vc.8\n"


@pytest.mark.parametrize("program", PAGES)
def test_a_page_has_name_exit_codes_and_neighbours(documents: Path, program: str) -> None:
    sections = re.findall(r"(?m)^\.SH (.*)$", page(documents, program))
    assert [each for each in ("NAME", "SYNOPSIS", "EXIT STATUS", "SEE ALSO") if each not in sections] == []
    assert re.search(rf"(?m)^\.SH NAME\n{program} - \w", page(documents, program))


@pytest.mark.skipif(not (shutil.which("groff") or shutil.which("mandoc")), reason="needs groff or mandoc")
@pytest.mark.parametrize("program", PAGES)
def test_a_page_is_formatted_without_a_warning(documents: Path, program: str) -> None:
    source = gzip.decompress((documents / f"usr/share/man/man8/{program}.8.gz").read_bytes())
    groff = ["groff", "-ww", "-man", "-Tutf8"]
    command = groff if shutil.which("groff") else ["mandoc", "-W", "warning", "-T", "utf8"]
    done = subprocess.run(command, input=source, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert f"{program.upper()}(8)" in done.stdout.decode()


def test_two_runs_write_the_same_bytes(documents: Path, tmp_path: Path) -> None:
    again = write(tmp_path, hash_seed="1")
    for path in documents.rglob("*"):
        if path.is_file():
            assert (again / path.relative_to(documents)).read_bytes() == path.read_bytes(), path


def test_a_page_is_compressed_without_name_and_time(documents: Path) -> None:
    """Byte 3 has the flags, and 4 to 7 the time (RFC 1952, 2.3)."""
    for path in documents.rglob("*.gz"):
        assert path.read_bytes()[3:8] == bytes(5), path


@pytest.mark.parametrize("shell", ["bash", *(each for each in ("fish", "zsh") if shutil.which(each))])
def test_a_shell_can_parse_each_completion(documents: Path, shell: str) -> None:
    folder = next(path for path in documents.glob("usr/share/*") if path.name.startswith(shell))
    for path in folder.rglob("*"):
        if path.is_file():
            done = subprocess.run([shell, "-n", str(path)], capture_output=True, check=False)
            assert (done.returncode, done.stderr) == (0, b""), path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("vcnode gu", "guests"),
        ("vcnode explain d", "dns"),
        ("vcnode tenant sh", "show"),
        ("vcnode status --add", "--address"),
        ("vn-agent --ch", "--check-config"),
        ("kubeproxy-ext ren", "render"),
    ],
)
def test_bash_completes_verbs_and_options(documents: Path, words: str, expected: str) -> None:
    program, *_ = words.split()
    script = documents / "usr/share/bash-completion/completions" / program
    function = f"_shtab_{program.replace('-', '_')}"
    # As bash calls it: program, word, word before.
    code = f'. "{script}"; COMP_WORDS=({words}); COMP_CWORD=$(({len(words.split()) - 1})); {function} ' + (
        f'{program} "${{COMP_WORDS[-1]}}" "${{COMP_WORDS[-2]}}"; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected]
