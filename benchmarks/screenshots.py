"""Make the pictures of the dashboard in docs/pictures/, from the sample that comes with it.

Run: .venv/bin/python benchmarks/screenshots.py [PAGE ...]
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.dashboard.conftest import BROWSERS, FLAGS, serving  # noqa: E402  found by the line above

INTO = ROOT / "docs" / "pictures"
SAMPLE = ROOT / "dashboard" / "recorded" / "whyidle.db"
SIZE = {"width": 1360, "height": 900}
# By the name of the picture: the page, what its link says, light or dark.
PICTURES: dict[str, tuple[str, dict[str, object], str]] = {
    "now": ("", {}, "light"),
    "now-dark": ("", {}, "dark"),
    "memory": ("memory", {}, "light"),
    "timeline": ("timeline", {}, "light"),
    "fix": ("fix", {}, "light"),
    "compare": ("compare", {"a": 4, "b": 3}, "light"),
}
SETTLES_MS = 3000


def main() -> None:
    """Make all pictures, or those that are named."""
    wanted = sys.argv[1:] or list(PICTURES)
    path = next(found for name in BROWSERS if (found := shutil.which(name)))
    INTO.mkdir(exist_ok=True)
    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=path, args=FLAGS)
        with serving(SAMPLE, "--sample") as served:
            for name in wanted:
                page, query, scheme = PICTURES[name]
                context = browser.new_context(viewport=SIZE, color_scheme=scheme)
                seen = context.new_page()
                seen.goto(served.url(page, **query))
                seen.wait_for_selector("[data-drawn], .w-budget", timeout=30_000)
                seen.wait_for_timeout(SETTLES_MS)
                seen.screenshot(path=INTO / f"{name}.png")
                context.close()
                print(f"docs/pictures/{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
