"""The real traces of tests/data/traces/real, by name, with their truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

REAL: Final = Path(__file__).parent.parent / "data" / "traces" / "real"
TRUTHS: Final[dict[str, dict[str, Any]]] = {
    path.stem: json.loads(path.read_text()) for path in sorted((REAL / "truth").glob("*.json"))
}
KINETO: Final = [name for name, truth in TRUTHS.items() if "devices" in truth]
XPLANE: Final = [name for name, truth in TRUTHS.items() if "planes" in truth]


def path_of(name: str) -> Path:
    """Return the file of a trace."""
    folder, end = ("kineto", "json.gz") if name in KINETO else ("xplane", "xplane.pb.gz")
    return REAL / folder / f"{name}.{end}"
