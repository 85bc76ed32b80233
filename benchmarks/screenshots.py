"""Make the pictures in docs/pictures/: the dashboard's pages, and what a terminal shows.

They show the sample that comes with the dashboard, recorded by attaching to jobs on a real H200.

Run: .venv/bin/python benchmarks/screenshots.py [PAGE ...]
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize, sync_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.ansi import AnsiDecoder
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.dashboard.conftest import BROWSERS, FLAGS, serving  # noqa: E402  found by the line above

INTO = ROOT / "docs" / "pictures"
SAMPLE = ROOT / "dashboard" / "recorded" / "whyidle.db"
SIZE: ViewportSize = {"width": 1360, "height": 900}
# By the name of the picture: the page, what its link says, light or dark.
Scheme = Literal["light", "dark"]
PICTURES: dict[str, tuple[str, dict[str, object], Scheme]] = {
    "now": ("", {}, "light"),
    "now-dark": ("", {}, "dark"),
    "memory": ("memory", {}, "light"),
    "timeline": ("timeline", {}, "light"),
    "fix": ("fix", {}, "light"),
    "compare": ("compare", {"a": 1, "b": 2}, "light"),
}
SETTLES_MS = 3000
# What a terminal shows: the command, how wide, and where it is cut.
TERMINAL, COMMAND, COLUMNS = "diagnose", ("diagnose", "1"), 90
UNTIL = "  single operations"


def main() -> None:
    """Make all pictures, or those that are named."""
    wanted = sys.argv[1:] or [TERMINAL, *PICTURES]
    INTO.mkdir(exist_ok=True)
    if TERMINAL in wanted:
        wanted.remove(TERMINAL)
        terminal()
    if not wanted:
        return
    path = next(found for name in BROWSERS if (found := shutil.which(name)))
    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=path, args=FLAGS)
        with serving(SAMPLE, "--sample") as served:
            for name in wanted:
                page, query, scheme = PICTURES[name]
                shoot(browser, name, served.url(page, **query), scheme)
        browser.close()


def terminal() -> None:
    """Draw what a command prints of the sample's first recording, as a picture without fonts."""
    with tempfile.TemporaryDirectory() as state:
        shutil.copy(SAMPLE, state)
        done = subprocess.run(
            [sys.executable, "-m", "whyidle.monitor", *COMMAND],
            env={**os.environ, "WHYIDLE_STATE_DIR": state, "FORCE_COLOR": "1",
                 "COLUMNS": str(COLUMNS), "PYTHONUTF8": "1"},
            text=True, check=True, stdout=subprocess.PIPE,
        )  # fmt: skip
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    shown, found, _ = done.stdout.partition(UNTIL)
    assert found, f"{COMMAND} prints no line {UNTIL!r} any more"
    for line in AnsiDecoder().decode(shown):
        console.print(line)
    # A page that shows it asks no other host for a font.
    plain = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    drawn = console.export_svg(
        title=f"monitor {' '.join(COMMAND)}", code_format=plain, unique_id="whyidle"
    )
    (INTO / f"{TERMINAL}.svg").write_text(drawn)


def shoot(browser: Browser, name: str, url: str, scheme: Scheme) -> None:
    """Make one picture of all that the window shows."""
    context = browser.new_context(viewport=SIZE, color_scheme=scheme)
    seen = context.new_page()
    seen.goto(url)
    seen.wait_for_selector("[data-drawn], .w-budget", timeout=30_000)
    seen.wait_for_timeout(SETTLES_MS)
    seen.screenshot(path=INTO / f"{name}.png")
    context.close()
    print(f"docs/pictures/{name}.png")


if __name__ == "__main__":
    main()
