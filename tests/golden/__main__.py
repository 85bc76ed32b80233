"""Show what a change of the rules alters in all that was ever said.

Run: make golden, or
     .venv/bin/python -m tests.golden [--write] [--mirrors DIR] [--json] [NAME...]
"""

from __future__ import annotations

import argparse
import difflib
import fcntl
import json
import os
import sys
import tempfile
from pathlib import Path

from tests.golden import GOLDEN, WITH_SOURCE, Subject, golden, said, subjects


def main() -> None:
    """Judge everything, print how it differs from the golden file, and write that if asked."""
    wanted = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    wanted.add_argument("name", nargs="*", help="only what has this in its name")
    wanted.add_argument("--write", action="store_true", help="agree to what is said now")
    wanted.add_argument("--mirrors", type=Path, help="clones of the public programs")
    wanted.add_argument("--json", action="store_true", help="print the whole answers instead")
    given = wanted.parse_args()
    mirrors = given.mirrors or os.environ.get("STRANGERS_MIRRORS")
    chosen = [
        each
        for each in subjects(None if mirrors is None else Path(mirrors))
        if not given.name or any(part in each.name for part in given.name)
    ]
    if not chosen:
        sys.exit(f"Nothing recorded has {' or '.join(given.name)} in its name.")
    if given.json:
        print(json.dumps({each.name: each.answer() for each in chosen}, indent=1, sort_keys=True))
        return
    with (Path(tempfile.gettempdir()) / "whyidle-golden.lock").open("w") as alone:
        # Programs lie where they were recorded: one run at a time.
        fcntl.flock(alone, fcntl.LOCK_EX)
        sys.exit(compare(chosen, write=given.write, whole=not given.name))


def compare(chosen: list[Subject], *, write: bool, whole: bool) -> bool:
    """Print the differences; tell whether there are any."""
    before = golden()
    now = dict(zip((each.name for each in chosen), said(chosen), strict=True))
    differ = [name for name in now if now[name] != before.get(name)]
    for name in differ:
        lines = difflib.ndiff(before.get(name, []), now[name])
        print(*(line for line in lines if not line.startswith("?")), sep="\n")
    # Without clones at hand nothing is known of the programs beside their source.
    gone = [x for x in before if x not in now and not x.startswith(WITH_SOURCE)] if whole else []
    for name in gone:
        print(f"- {name}: no longer recorded")
    print(f"{len(differ) + len(gone)} of {len(now)} differ", file=sys.stderr)
    if write:
        kept = {name: lines for name, lines in (before | now).items() if name not in gone}
        text = [line for name in sorted(kept) for line in kept[name]]
        GOLDEN.write_text("\n".join(text) + "\n")
        return False
    return bool(differ or gone)


if __name__ == "__main__":
    main()
