"""Asking a web process as a browser does: one connection that stays open, one request at a time."""

import http.client
import math
import secrets
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.conf import settings

ANSWER_SECONDS_MAX = 60.0
IDLE_SECONDS_MAX = 3.0
"""The server closes a connection that is idle for five seconds."""


@dataclass(frozen=True, slots=True)
class Made:
    """What was made, and how to come in."""

    slug: str
    runs: int
    cookie: str
    approver_cookie: str
    token: str
    case: int
    closed_case: int
    case_in_doubt: int
    run: str
    event: str
    approval: int
    seconds: float

    def page(self, path: str) -> str:
        return f"/w/{self.slug}/{path}"


@dataclass
class Browser:
    """A connection with a person's cookie; `took` is from the request to the answer's last byte."""

    url: str
    cookie: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        self._used = 0.0
        self._talk = http.client.HTTPConnection(
            str(parts.hostname), parts.port, timeout=ANSWER_SECONDS_MAX
        )

    def get(self, path: str) -> bytes:
        return self._get(path, (200,))[1]

    def took(self, path: str, expected: tuple[int, ...] = (200,)) -> float:
        """Milliseconds."""
        return self._get(path, expected)[0]

    def fetched(self, path: str) -> tuple[float, bytes]:
        """Milliseconds, and the page."""
        return self._get(path, (200,))

    def post(self, path: str, fields: dict[str, str]) -> None:
        """Send a form as a page of ours would."""
        token = secrets.token_hex(16)
        headers = {
            "cookie": f"{self.cookie}; {settings.CSRF_COOKIE_NAME}={token}",
            "content-type": "application/x-www-form-urlencoded",
            "x-csrftoken": token,
        }
        self._ask("POST", path, (200, 302), headers=headers, body=urlencode(fields))

    def _get(self, path: str, expected: tuple[int, ...]) -> tuple[float, bytes]:
        return self._ask("GET", path, expected, headers={"cookie": self.cookie})

    def _ask(
        self, method: str, path: str, expected: tuple[int, ...], **more: Any
    ) -> tuple[float, bytes]:
        if time.perf_counter() - self._used > IDLE_SECONDS_MAX:
            self._talk.close()
            self._talk.connect()
        begun = time.perf_counter()
        self._talk.request(method, path, **more)
        answer = self._talk.getresponse()
        body = answer.read()
        self._used = time.perf_counter()
        assert answer.status in expected, f"{path} answered {answer.status}"
        spent = 1_000 * (self._used - begun)
        return spent, body


def p95(values: Iterable[float]) -> float:
    """The value that 95 of 100 do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[math.ceil(0.95 * len(ordered)) - 1]


def median_of(rounds: Iterable[dict[str, float]]) -> dict[str, float]:
    """Key by key, the median of some rounds."""
    found = list(rounds)
    return {key: statistics.median([one[key] for one in found]) for key in found[0]}
