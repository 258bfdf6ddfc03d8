"""Logs: what is written there lives long and is read by many, so no living token stands in it.

A link of a correction, an invitation or a set-up opens what it names to whoever has it. Django
names the path of a request that failed, and an access log that of each.
"""

import logging
import re
from typing import Any

from pythonjsonlogger.json import JsonFormatter

LINK = re.compile(
    r"((?:/|%2F)(?:c|join|setup|ask|summary/stop|reset/key|confirm-email)(?:/|%2F))[^/\s?&#\"'%]+",
    re.IGNORECASE,
)
KEY = re.compile(r"\b(amends_[0-9a-zA-Z]+_)[\w-]+")


def without_tokens(text: str) -> str:
    return KEY.sub(r"\1…", LINK.sub(r"\1…", text))


class Redacting(logging.Formatter):
    """The whole line, its traceback too, without the tokens."""

    def format(self, record: logging.LogRecord) -> str:
        return without_tokens(super().format(record))


class RedactingJson(JsonFormatter):
    """One JSON object a line (AMENDS_LOG_FORMAT=json), each text in it without the tokens. What
    libraries hang on a record beside its message (a request, a connection) is left out.
    """

    def __init__(self, process: str) -> None:
        super().__init__(
            ["levelname", "name", "message", "exc_info", "process"],
            rename_fields={
                "levelname": "level",
                "name": "logger",
                "process": "pid",
                "part": "process",
            },
            static_fields={"part": process},
            timestamp="time",
            json_ensure_ascii=False,
        )

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        super().add_fields(log_data, record, message_dict)
        for name in log_data.keys() - FIELDS:
            del log_data[name]

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        told = super().process_log_record(log_data)
        return {k: without_tokens(v) if isinstance(v, str) else v for k, v in told.items()}


FIELDS = {"time", "level", "logger", "message", "exc_info", "process", "pid"}


class WithoutTraceback(logging.Filter):
    """Leaves one line of what a stranger can have logged at will, such as a foreign `Host`."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = None
        return True
