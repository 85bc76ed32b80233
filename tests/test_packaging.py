"""The layout: what is packaged, who imports whom, and that set-up and pins match pyproject.toml."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
TOPS = ("monitor", "agents", "dashboard", "demo_workloads")
PYPROJECT_TEXT = (ROOT / "pyproject.toml").read_text()
PYPROJECT = tomllib.loads(PYPROJECT_TEXT)
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
SOURCES = sorted(
    path for top in (*TOPS, "tests", "benchmarks") for path in (ROOT / top).rglob("*.py")
)


def absolute_imports(path: Path, feature_version: tuple[int, int] | None = None) -> Iterator[str]:
    """Give the first name of every import that is not relative."""
    tree = ast.parse(path.read_text(), str(path), feature_version=feature_version)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").split(".")[0]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("top", TOPS)
def test_each_folder_stands_in_the_package(top: str) -> None:
    link = ROOT / "whyidle" / top
    assert link.is_symlink()
    assert link.readlink() == Path("..") / top
    # A folder without one is packaged with its parent, as data.
    assert (link / "__init__.py").is_file()


def test_packages_are_found_and_nothing_else_is() -> None:
    found = PYPROJECT["tool"]["setuptools"]["packages"]["find"]
    assert found == {"include": ["whyidle*"], "namespaces": False}
    assert {path.name for path in (ROOT / "whyidle").iterdir()} - {"__pycache__"} == {
        "__init__.py", "py.typed", *TOPS,
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted((ROOT / "agents").rglob("*.py")), ids=lambda p: p.name)
def test_agents_need_only_the_standard_library_of_python_3_9(path: Path) -> None:
    assert set(absolute_imports(path, feature_version=(3, 9))) <= sys.stdlib_module_names


def test_folders_are_never_imported_by_their_bare_name() -> None:
    # Few files have such words at all; only those are parsed.
    likely = re.compile(rf"^\s*(import|from)\s.*\b({'|'.join(TOPS)})\b", re.MULTILINE)
    found = [path for path in SOURCES if likely.search(path.read_text())]
    assert not [path for path in found if set(TOPS) & set(absolute_imports(path))]


@pytest.mark.parametrize("path", sorted((ROOT / "demo_workloads").rglob("*.py")), ids=str)
def test_workloads_import_nothing_of_ours(path: Path) -> None:
    assert "whyidle" not in set(absolute_imports(path))


def test_the_version_is_that_of_the_tag() -> None:
    assert "version" in PROJECT["dynamic"]
    assert re.fullmatch(r"\d+(\.\d+)*(\.dev\d+)?(\+\S+)?", metadata.version("whyidle"))
    stated = [p for p in SOURCES if re.search(r"^__version__\s*=", p.read_text(), re.MULTILINE)]
    assert not stated
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_constraints_pin_every_direct_requirement(extra: str) -> None:
    wanted = [Requirement(line) for line in (EXTRAS[extra] if extra else PROJECT["dependencies"])]
    for need in wanted:
        if need.name == "whyidle":
            assert need.extras <= set(EXTRAS)
        else:
            assert need.specifier.contains(pins()[canonicalize_name(need.name)]), need


def test_constraints_bring_no_cuda() -> None:
    named = {name for name in pins() if name.startswith(("nvidia-", "cuda", "triton"))}
    assert named == {"nvidia-ml-py"}
    assert not [version for version in pins().values() if "+" in version]


def test_continuous_integration_runs_make_test() -> None:
    run = ROOT / ".ci" / "run"
    assert run.stat().st_mode & 0o111
    said = run.read_text()
    assert all(re.search(rf"^make {goal}$", said, re.MULTILINE) for goal in ("test", "test-long"))


def test_readme_opens_with_exactly_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    title, sentence, block = readme.split("\n\n")[:3]
    assert title == "# whyidle"
    assert len(sentence.splitlines()) == 1
    assert block == "```\nmake demo\nmake test\n```"
