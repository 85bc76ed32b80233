"""Mask what looks like a secret in a command line, before anything stores or shows it.

It would rather hide a harmless word than keep a token: the store outlives the job.
"""

from __future__ import annotations

import re

MASK = "***"

_SECRET_WORDS = "token|secret|secrets|password|passwd|pwd|passphrase|credential|credentials|apikey"  # noqa: S105
_KEY_OWNERS = "api|access|secret|private|auth|license|encryption|signing|account|wandb|subscription"
# The last word of a name decides: --hf-token is one, --token-dim and --tokenizer are none.
_NAME = rf"(?:[\w.-]*[-_.])?(?:{_SECRET_WORDS}|(?:{_KEY_OWNERS})[-_.]?key)"
_NAMED = re.compile(rf"(?i)^(-{{0,2}}{_NAME})([=:])(.+)$", re.DOTALL)
_FLAG = re.compile(rf"(?i)^-{{1,2}}{_NAME}$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_INSIDE = re.compile(
    rf"(?i)\b({_NAME})(\s*=\s*|\s*:\s*)(['\"]?)([^\s'\",;&]+)",
)
_URL_PASSWORD = re.compile(r"(\w+://[^/\s:@]*:)[^/\s@]+(@)")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
# Shapes that issuers give their tokens, wherever they stand.
_SHAPES = re.compile(
    r"\b(?:hf_\w{16,}|sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|xox[abprs]-[\w-]{10,}|ey[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_WANDB = re.compile(r"\b[0-9a-f]{40}\b")


def mask(arguments: list[str]) -> list[str]:
    """Return the arguments with every secret replaced."""
    masked: list[str] = []
    value_is_secret = False
    for argument in arguments:
        if value_is_secret and not argument.startswith("--"):
            masked.append(MASK)
            value_is_secret = False
            continue
        value_is_secret = bool(_FLAG.match(_CAMEL.sub("-", argument)))
        masked.append(mask_text(argument))
    return masked


def mask_text(text: str) -> str:
    """Mask within one argument or a line of code."""
    if named := _NAMED.match(_CAMEL.sub("-", text) if text.startswith("-") else text):
        name = text[: text.index(named[2])]
        return f"{name}{named[2]}{MASK}"
    text = _INSIDE.sub(rf"\1\2\3{MASK}", text)
    text = _URL_PASSWORD.sub(rf"\1{MASK}\2", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _SHAPES.sub(MASK, text)
    return _WANDB.sub(MASK, text)
