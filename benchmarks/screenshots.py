"""Make the pictures of the dashboard in docs/pictures/.

They show the sample that comes with it; `v100` shows a public trace of a real GPU, from the tests'
data (tests/data/traces/real/INDEX.md says where it comes from).

Run: .venv/bin/python benchmarks/screenshots.py [PAGE ...]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, FloatRect, ViewportSize, sync_playwright

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
    "compare": ("compare", {"a": 4, "b": 3}, "light"),
}
SETTLES_MS = 3000
V100 = "v100"
V100_TRACE = ROOT / "tests/data/traces/real/kineto/v100_resnet50_workers0.json.gz"
# The trace alone: the sidebar beside it describes the run that it had to be put into.
V100_PART: FloatRect = {"x": 330, "y": 160, "width": 960, "height": 662}


@contextmanager
def v100_store() -> Iterator[Path]:
    """Yield a store whose one run holds the trace of the V100."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "WHYIDLE_STATE_DIR": folder}
        monitor = [sys.executable, "-m", "whyidle.monitor"]
        label = ["--label", "ResNet-50 on a V100"]
        for command in (
            ["run", "--quiet", "--observe", *label, "--", "sleep", "1"],
            ["trace", str(V100_TRACE), "--run", "last"],
        ):
            subprocess.run(
                [*monitor, *command], env=environment, stdout=subprocess.DEVNULL, check=True
            )
        yield Path(folder) / "whyidle.db"


def main() -> None:
    """Make all pictures, or those that are named."""
    wanted = sys.argv[1:] or [*PICTURES, V100]
    path = next(found for name in BROWSERS if (found := shutil.which(name)))
    INTO.mkdir(exist_ok=True)
    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=path, args=FLAGS)
        with serving(SAMPLE, "--sample") as served:
            for name in [name for name in wanted if name in PICTURES]:
                page, query, scheme = PICTURES[name]
                shoot(browser, name, served.url(page, **query), scheme)
        if V100 in wanted:
            with v100_store() as store, serving(store) as served:
                shoot(browser, V100, served.url("timeline"), "light", V100_PART)
        browser.close()


def shoot(
    browser: Browser, name: str, url: str, scheme: Scheme, part: FloatRect | None = None
) -> None:
    """Make one picture, of all that the window shows or of a part."""
    context = browser.new_context(viewport=SIZE, color_scheme=scheme)
    seen = context.new_page()
    seen.goto(url)
    seen.wait_for_selector("[data-drawn], .w-budget", timeout=30_000)
    seen.wait_for_timeout(SETTLES_MS)
    seen.screenshot(path=INTO / f"{name}.png", clip=part)
    context.close()
    print(f"docs/pictures/{name}.png")


if __name__ == "__main__":
    main()
