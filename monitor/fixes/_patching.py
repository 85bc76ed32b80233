"""One codemod applied to one file: the text before and after, or why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from whyidle.monitor.code.names import source_of
from whyidle.monitor.code.options import Options
from whyidle.monitor.fixes._change import NotHere, Refused, SetElsewhere
from whyidle.monitor.fixes._codemod import Codemod, Patch, Refusal, Wanted

TOO_DEEP = "the file is nested too deep to be read"


def patched(
    codemod: Codemod, file: str, text: str, wanted: Wanted, known: Mapping[str, str] | None = None
) -> Patch | Refusal | None:
    """Return the patch of one file; ``None`` where it has nothing of the kind.

    ``known``: the texts of other files of the program.
    """
    try:
        source = source_of(text)
    except (SyntaxError, ValueError) as error:
        return Refusal(codemod.id, f"the file is no Python that can be read: {error}", file)
    except RecursionError:
        return Refusal(codemod.id, TOO_DEEP, file)
    try:
        change = codemod.change(source, wanted)
        after = change.text()
        if after == text:
            return None
        compile(after, file, "exec", dont_inherit=True)
    except NotHere:
        return None
    except SetElsewhere as refused:
        # Say which option of the user's it is that sets the value.
        try:
            option = Options({**(known or {}), file: text}).of(refused.given, file)
        except RecursionError:
            option = None
        if option is None:
            line = refused.line(source)
            return Refusal(codemod.id, refused.why, file, line, edits=refused.edits)
        why = f"{refused.name} comes from {option.name}"
        return Refusal(
            codemod.id, why, file, refused.line(source), option.to(refused.value(option.now))
        )
    except Refused as refused:
        line = refused.line(source)
        return Refusal(codemod.id, refused.why, file, line, edits=refused.edits)
    except RecursionError:
        return Refusal(codemod.id, TOO_DEEP, file)
    except Exception as error:  # noqa: BLE001  a defect of ours is no patch
        what = f"a defect of whyidle: {type(error).__name__}: {error}"
        return Refusal(codemod.id, what, file)
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
    texts = dict(files)
    for codemod in codemods:
        for file, text in texts.items():
            found = patched(codemod, file, text, wanted[file], texts)
            if isinstance(found, Refusal):
                refusals.append(found)
            elif found is not None and codemod.changes_numbers and not allow_numerics:
                why = f"{codemod.title} changes what is computed: --allow-numerics permits it"
                refusals.append(Refusal(codemod.id, why, file))
            elif found is not None:
                return found, refusals
    return None, refusals
