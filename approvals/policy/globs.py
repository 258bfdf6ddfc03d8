"""Globs over tool names: `*` stands for any characters, `?` for one."""

import re
from functools import lru_cache

GLOB_CHARACTERS_MAX = 200
WILDCARDS_MAX = 6  # each one multiplies the work of a match


@lru_cache(maxsize=4096)
def _pattern(glob: str) -> re.Pattern[str]:
    words = {"*": ".*", "?": "."}
    return re.compile("".join(words.get(one) or re.escape(one) for one in glob), re.DOTALL)


def matches(glob: str, name: str) -> bool:
    return _pattern(glob).fullmatch(name) is not None


def specificity(glob: str) -> tuple[int, int, int]:
    """The greater, the more specific: no wildcard first, then more letters, then fewer `*`."""
    wild = glob.count("*") + glob.count("?")
    return (wild == 0, len(glob) - wild, -glob.count("*"))


def mistake(glob: str) -> str | None:
    """What keeps this from being a glob, in words; None if nothing does."""
    if not glob:
        return "a glob needs at least one character"
    if len(glob) > GLOB_CHARACTERS_MAX:
        return f"longer than {GLOB_CHARACTERS_MAX} characters"
    if glob.count("*") + glob.count("?") > WILDCARDS_MAX:
        return f"more than {WILDCARDS_MAX} wildcards"
    return None


def posix(glob: str) -> str:
    """The glob as a regular expression that PostgreSQL reads, without its anchors."""
    words = {"*": ".*", "?": "."}
    return "".join(words.get(one) or re.sub(r"([^\w])", r"\\\1", one) for one in glob)
