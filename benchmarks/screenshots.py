"""Make the pictures of the dashboard in docs/pictures/.

They show the sample that comes with it.

Run: .venv/bin/python benchmarks/screenshots.py [PAGE ...]
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize, sync_playwright

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


def main() -> None:
    """Make all pictures, or those that are named."""
    wanted = sys.argv[1:] or [*PICTURES]
    path = next(found for name in BROWSERS if (found := shutil.which(name)))
    INTO.mkdir(exist_ok=True)
    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=path, args=FLAGS)
        with serving(SAMPLE, "--sample") as served:
            for name in wanted:
                page, query, scheme = PICTURES[name]
                shoot(browser, name, served.url(page, **query), scheme)
        browser.close()


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
