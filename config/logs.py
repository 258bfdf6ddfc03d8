"""Logs: what is written there lives long and is read by many, so no living token stands in it.

A link of a correction, an invitation or a set-up opens what it names to whoever has it. Django
names the path of a request that failed, and an access log that of each.
"""

import logging
import re

LINK = re.compile(
    r"((?:/|%2F)(?:c|join|setup|ask|reset/key|confirm-email)(?:/|%2F))[^/\s?&#\"'%]+", re.IGNORECASE
)
KEY = re.compile(r"\b(amends_[0-9a-zA-Z]+_)[\w-]+")


class Redacting(logging.Formatter):
    """The whole line, its traceback too, without the tokens."""

    def format(self, record: logging.LogRecord) -> str:
        return KEY.sub(r"\1…", LINK.sub(r"\1…", super().format(record)))


class WithoutTraceback(logging.Filter):
    """Leaves one line of what a stranger can have logged at will, such as a foreign `Host`."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = None
        return True
