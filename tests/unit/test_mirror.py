# SPDX-License-Identifier: Apache-2.0
"""Each file of tests in a folder of tests/unit is named for a module, or a package, of the folder's package.

Modules need no such file, and what a file tests is not checked.
"""

from pathlib import Path

from tests.packages import PACKAGES, ROOT

UNIT = ROOT / "tests" / "unit"
MORE_PACKAGES = ("devkit", "vcnode_demo", "tests")
# Properties of a package as a whole.
OF_WHOLE_PACKAGES = {Path("vnagent/test_isolation.py")}


def modules_of(folder: Path) -> set[str]:
    """The names of the modules and packages directly below `folder`."""
    return {path.stem.strip("_") for path in folder.glob("*") if path.suffix in ("", ".py")}


def has_module(test: Path) -> bool:
    """Whether `test_NAME.py` or `test_NAME_TOPIC.py` stands where the module NAME stands."""
    words = test.stem.split("_")[1:]
    names = {"_".join(words[: count + 1]) for count in range(len(words))}
    return any(names & modules_of(root / test.parent) for root in (ROOT, ROOT / "tests"))


def test_each_file_of_tests_names_a_module_of_its_package() -> None:
    tests = {path.relative_to(UNIT) for path in UNIT.glob("*/**/test_*.py")}
    assert {path.parts[0] for path in tests} <= {*PACKAGES, *MORE_PACKAGES, *modules_of(ROOT / "tests")}
    assert sorted(path for path in tests - OF_WHOLE_PACKAGES if not has_module(path)) == []
