"""Globs over tool names in a policy: which may be written, and how PostgreSQL reads them."""

import re

GLOB_CHARACTERS_MAX = 200
WILDCARDS_MAX = 6  # each one multiplies the work of a match


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
