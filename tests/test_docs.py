"""The documents say what the code says, and both READMEs the same."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CHINESE = (ROOT / "README.zh-CN.md").read_text()
COMMANDS = sorted(
    path.stem.removesuffix("_").replace("_", "-")
    for path in (ROOT / "monitor" / "commands").glob("*.py")
    if not path.stem.startswith("_")  # these help the commands
)


def test_generated_tables_are_current() -> None:
    pages = [
        "README.md",
        "README.zh-CN.md",
        *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
    ]
    check = [sys.executable, "-m", "cogapp", "--check", "--verbosity=0", *pages]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\nType: .venv/bin/cog -r {' '.join(pages)}"


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 180


def _without_cog(text: str) -> str:
    """Return a document without the code that generates its parts."""
    return re.sub(r"<!-- \[\[\[cog.*?\]\]\] -->", "", text, flags=re.DOTALL)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(r"```.*?```", id="blocks of code"),
        pytest.param(r"^\| ([`\[].*?) \|", id="first cells of tables"),
        pytest.param(r"^#+ ", id="levels of headings"),
        pytest.param(r"^(?:\d\.|-) ", id="items of lists"),
        pytest.param(r"\]\(([^)]*)\)", id="links and pictures"),
    ],
)
def test_the_chinese_readme_has_what_the_english_one_has(what: str) -> None:
    def found(text: str) -> list[str]:
        found = re.findall(what, _without_cog(text), re.DOTALL | re.MULTILINE)
        # The words of a table's heading are translated, and each text links to the other.
        return [
            each for each in found if "README" not in each and (each.isascii() or "```" in each)
        ]

    assert found(CHINESE) == found(README)
    assert len(found(README)) > 2


def test_the_readmes_show_the_same_commands() -> None:
    def inline(text: str) -> set[str]:
        return set(
            re.findall(
                r"`([^`\n]+)`", re.sub(r"```.*?```", "", _without_cog(text), flags=re.DOTALL)
            )
        )

    one_sided = inline(CHINESE) ^ inline(README)
    assert not one_sided, f"only in one of README.md and README.zh-CN.md: {one_sided}"


def test_what_the_documents_link_to_is_there() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        text = re.sub(r"```.*?```", "", _without_cog(page.read_text()), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.mark.skipif(not COMMANDS, reason="no command is built yet")
def test_readme_mentions_every_command() -> None:
    missing = [name for name in COMMANDS if f"monitor {name}" not in README]
    assert not missing, f"commands without a row in README.md and README.zh-CN.md: {missing}"


def test_readme_says_where_the_data_is() -> None:
    for place in ("WHYIDLE_STATE_DIR", "XDG_STATE_HOME", "~/.local/state/whyidle"):
        assert place in README


def test_changelog_is_keep_a_changelog() -> None:
    log = (ROOT / "CHANGELOG.md").read_text()
    assert log.startswith("# Changelog\n")
    assert "## [Unreleased]" in log


def test_the_map_shows_every_room_in_the_order_of_the_layers() -> None:
    """A room may import what stands below it in the table: as the contract has it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (flow,) = [c for c in contracts["contracts"] if c["name"] == "data flow inside monitor"]
    layers = [{name.strip() for name in layer.split("|")} for layer in flow["layers"]]
    text = (ROOT / "ARCHITECTURE.md").read_text()
    shown = re.findall(r"^\| `(\w+)/` \|", text.partition("## Beside")[0], re.MULTILINE)
    rooms = {path.parent.name for path in (ROOT / "monitor").glob("*/__init__.py")}
    assert set(shown) == rooms
    places = [next(n for n, layer in enumerate(layers) if room in layer) for room in shown]
    assert places == sorted(places)


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_what_the_map_and_the_recipes_name_is_there(page: str) -> None:
    rooms = "core|rules|attach|traces|agents|recording|monitor|tests|benchmarks|demo_workloads|docs"
    named = re.findall(rf"`((?:{rooms})/[\w/]+(?:\.\w+|/))", (ROOT / page).read_text())
    assert len(named) > 5
    for path in named:
        assert (ROOT / path).exists() or (ROOT / "monitor" / path).exists(), path


def test_names_that_the_recipes_use_are_in_the_code() -> None:
    rooms = ("monitor", "agents", "tests", "benchmarks", "demo_workloads")
    code = {
        word
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        for word in re.findall(r"\w+", path.read_text())
    }
    recipes = (ROOT / "CONTRIBUTING.md").read_text().partition("# Recipes")[2]
    named = re.findall(r"`@?([A-Za-z_][\w.]*\w)(?:\([^`]*\))?`", recipes)
    assert len(named) > 10
    assert not [name for name in named if not set(name.split(".")) <= code | {"md", "toml"}]
