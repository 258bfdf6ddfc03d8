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
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
KEY = re.compile(r"\b(amends_[0-9a-zA-Z]+_)[\w-]+")


def without_tokens(text: str) -> str:
    return KEY.sub(r"\1…", LINK.sub(r"\1…", text))


class Redacting(logging.Formatter):
    """The whole line, its traceback too, without the tokens. What is said stays in its line: a path
    or an error that holds the end of one would write the next.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        record.message = CONTROL.sub(lambda one: ascii(one[0])[1:-1], record.message)
        return super().formatMessage(record)

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


FAILED = 500
FIELDS = {"time", "level", "logger", "message", "exc_info", "process", "pid"}


class WithoutTraceback(logging.Filter):
    """Leaves one line of what somebody can have logged at will, such as a foreign `Host`, or a page
    that is not for them.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "status_code", 0) < FAILED:
            record.exc_info = None
        return True
