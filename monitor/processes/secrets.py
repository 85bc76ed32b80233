"""Mask what looks like a secret in a command line, before anything stores or shows it.

When in doubt it hides a harmless word rather than keep a token: the store outlives the job.
"""

from __future__ import annotations

import re

MASK = "***"
# A program given as an argument may have megabytes; nobody reads that far.
LONGEST = 4096

_SECRET_WORDS = (
    "token|secret|secrets|password|passwd|pwd|pw|passphrase|credential|credentials|apikey|auth"  # noqa: S105
)
_KEY_OWNERS = "api|access|secret|private|auth|license|encryption|signing|account|wandb|subscription"
# The last word of a name decides: --hf-token is a secret, --token-dim and --tokenizer are not. It
# may begin with a capital, as in hfToken. Patterns are called pat, but github_pat is a token.
_BREAK = r"(?:[-_.]|(?-i:(?<=[a-z0-9])(?=[A-Z])))"
_NAME = (
    rf"(?!-*no[-_])(?:(?:[\w.-]{{0,80}}{_BREAK})?(?:{_SECRET_WORDS}|(?:{_KEY_OWNERS})[-_.]?key)"
    rf"|[\w.-]{{0,80}}{_BREAK}pat)"
)
_NAMED = re.compile(rf"(?i)^((?:-d|-{{0,2}}){_NAME}[=:])(.+)$", re.DOTALL)
_FLAG = re.compile(rf"(?i)^-{{1,2}}{_NAME}$")
# Inside a text the name and the value may be quoted (JSON, a dict), with the shell's backslashes
# before the quotes.
_INSIDE = re.compile(
    rf"(?i)\b({_NAME}\\?['\"]?\]?\s*[=:]\s*)"
    r"(?:[fbru]{0,2}(?P<quote>\\?['\"]).*?(?<!\\)(?P=quote)|\\?['\"]?[^\s'\",;&]+)",
    re.DOTALL,
)
# A flag in a shell's line: its value may be quoted, and is no flag itself.
_FLAG_INSIDE = re.compile(
    rf"(?i)(?<!\S)(-{{1,2}}{_NAME}\s+)(?P<quote>\\?['\"])?(?!-)(?(quote).*?(?P=quote)|\S+)",
    re.DOTALL,
)
# The secret is all that follows, to the end of the line or the quotes, with or without a scheme.
_HEADER = re.compile(
    r"(?i)\b((?:proxy-)?authorization\\?['\"]?\s*[=:]\s*(?:[fbru]{0,2}\\?['\"])?)[^'\"\r\n]+"
)
_HEADER_NAME = re.compile(r"(?i)^(?:.*\W)?(?:proxy-)?authorization:$", re.DOTALL)
_SCHEMES = {"basic", "bearer", "digest", "negotiate", "token"}
# A password may itself contain an @: the last one before the host ends it.
_URL_PASSWORD = re.compile(r"(://[^/\s:]*:)[^/\s]+(@)")
_URL_TOKEN = re.compile(r"(://)[^/\s:@]{16,}(@)")
_SIGNED = re.compile(r"(?i)([?&](?:sig|x-amz-(?:signature|credential|security-token))=)[^&\s'\"]+")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
# The shapes of well-known tokens, wherever they are.
_SHAPES = re.compile(
    r"\b(?:hf_\w{16,}|sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|npm_\w{20,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|xox[abprs]-[\w-]{10,}|ey[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_WANDB = re.compile(r"\b[0-9a-f]{40}\b")


def mask(arguments: list[str]) -> list[str]:
    """Return the arguments with every secret replaced."""
    masked: list[str] = []
    value_is_secret = in_header = False
    for whole in arguments:
        argument = whole if len(whole) <= LONGEST else f"{whole[:LONGEST]}…"
        if in_header and argument.lower() in _SCHEMES:
            masked.append(argument)
        elif in_header or (value_is_secret and not argument.startswith("--")):
            masked.append(MASK)
            value_is_secret = in_header = False
        else:
            value_is_secret = bool(_FLAG.match(argument))
            in_header = bool(_HEADER_NAME.match(argument))
            masked.append(mask_text(argument))
    return masked


def mask_text(text: str) -> str:
    """Mask within one argument or a line of code."""
    if named := _NAMED.match(text):
        return f"{named[1]}{MASK}"
    text = _HEADER.sub(rf"\1{MASK}", text)
    text = _INSIDE.sub(_without_value, text)
    text = _FLAG_INSIDE.sub(_without_value, text)
    text = _SIGNED.sub(rf"\1{MASK}", text)
    text = _URL_TOKEN.sub(rf"\1{MASK}\2", text)
    text = _URL_PASSWORD.sub(rf"\1{MASK}\2", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _SHAPES.sub(MASK, text)
    return _WANDB.sub(MASK, text)


def _without_value(found: re.Match[str]) -> str:
    quote = found["quote"] or ""
    return f"{found[1]}{quote}{MASK}{quote}"
