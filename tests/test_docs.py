"""The README says what the code says."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = sorted(
    path.stem.replace("_", "-")
    for path in (ROOT / "monitor" / "commands").glob("*.py")
    if not path.stem.startswith("_")  # these help the commands
)


def test_generated_tables_are_current() -> None:
    pages = [
        "README.md",
        "docs/attach.md",
        "docs/probes.md",
        "docs/catalogue.md",
        "docs/accuracy.md",
        "docs/gpu.md",
    ]
    check = [sys.executable, "-m", "cogapp", "--check", "--verbosity=0", *pages]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\nType: .venv/bin/cog -r {' '.join(pages)}"


@pytest.mark.skipif(not COMMANDS, reason="no command is built yet")
def test_readme_mentions_every_command() -> None:
    assert not [name for name in COMMANDS if f"monitor {name}" not in README]


def test_readme_says_where_the_data_is() -> None:
    for place in ("WHYIDLE_STATE_DIR", "XDG_STATE_HOME", "~/.local/state/whyidle"):
        assert place in README


def test_changelog_is_keep_a_changelog() -> None:
    log = (ROOT / "CHANGELOG.md").read_text()
    assert log.startswith("# Changelog\n")
    assert "## [Unreleased]" in log
