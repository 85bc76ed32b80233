"""One codemod applied to one file: the text before and after, or why not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from whyidle.monitor.code.names import Source
from whyidle.monitor.fixes._change import NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Patch, Refusal, Wanted

TOO_DEEP = "the file is nested too deep to be read"


@lru_cache(maxsize=16)
def _read(text: str) -> Source:
    """Return a file as a tree; several codemods look at the same one, and change nothing of it."""
    return Source(text)


def patched(codemod: Codemod, file: str, text: str, wanted: Wanted) -> Patch | Refusal | None:
    """Return the patch of one file; ``None`` where it has nothing of the kind."""
    try:
        _read(text)
    except (SyntaxError, ValueError) as error:
        return Refusal(codemod.id, f"the file is no Python that can be read: {error}", file)
    except RecursionError:
        return Refusal(codemod.id, TOO_DEEP, file)
    try:
        change = codemod.change(_read(text), wanted)
        after = change.text()
        compile(after, file, "exec", dont_inherit=True)
    except NotHere:
        return None
    except Refused as refused:
        return Refusal(codemod.id, refused.why, file, refused.line)
    except RecursionError:
        return Refusal(codemod.id, TOO_DEEP, file)
    except Exception as error:  # noqa: BLE001  a defect of ours is no patch
        what = f"a defect of whyidle: {type(error).__name__}: {error}"
        return Refusal(codemod.id, what, file)
    if after == text:
        return None
    return Patch(file, text, after, codemod.id, codemod.title, tuple(change.notes))


def patches_of(
    codemods: Sequence[Codemod],
    files: Iterable[tuple[str, str]],
    wanted: dict[str, Wanted],
    *,
    allow_numerics: bool = False,
) -> tuple[Patch | None, list[Refusal]]:
    """Return the first patch that can be proved right, and what stopped the others."""
    refusals: list[Refusal] = []
    texts = list(files)
    for codemod in codemods:
        for file, text in texts:
            found = patched(codemod, file, text, wanted[file])
            if isinstance(found, Refusal):
                refusals.append(found)
            elif found is not None and codemod.changes_numbers and not allow_numerics:
                why = f"{codemod.title} changes what is computed: --allow-numerics permits it"
                refusals.append(Refusal(codemod.id, why, file))
            elif found is not None:
                return found, refusals
    return None, refusals
