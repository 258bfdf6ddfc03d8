"""The one place that speaks HTTP with the desk, and tells "not reachable" from "refused"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from amends import forks
from amends.errors import DeskUnreachable, KeyRefused, Refused, in_words

CONNECT_SECONDS = 3.0
READ_SECONDS = 10.0
# A long poll answers within the seconds asked for; this much later it is lost.
POLL_GRACE_SECONDS = 10.0
# Answers that say "not now": the same request may succeed later.
NOT_NOW = frozenset({408, 425, 429, 500, 502, 503, 504})
FORBIDDEN = 403
CHECK = "Is AMENDS_URL right, and is the desk up?"
NO_DESK = "this does not look like a desk: is AMENDS_URL right?"


class Wire:
    """A connection to one desk under one key. Safe to use from several threads."""

    def __init__(self, url: str, key: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError("the address of the desk starts with https:// or http://")
        self._url, self._key = url.rstrip("/") + "/api/v1/", key
        self._client = self._open()
        spoken = self._client.base_url
        # As it is told in errors and logs: without a name and password that may stand in it.
        self.address = f"{spoken.scheme}://{spoken.netloc.decode()}{spoken.path}"
        self._of_parents: list[httpx.Client] = []
        forks.tell(self)

    def _open(self) -> httpx.Client:
        return httpx.Client(
            base_url=self._url,
            headers={"Authorization": f"Bearer {self._key}", "Accept": "application/json"},
            timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            follow_redirects=False,
        )

    def before_fork(self) -> None:
        """Whoever waits for an answer goes on waiting."""

    def after_fork(self) -> None:
        pass

    def born_of_fork(self) -> None:
        """The parent reads what comes over its connections, so they are not even closed here."""
        self._of_parents.append(self._client)
        self._client = self._open()

    def get(
        self,
        path: str,
        *,
        wait_seconds: float = 0,
        params: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """One JSON object. With `wait_seconds` the desk may take that long to answer."""
        if not wait_seconds:
            return self._call("GET", path, params=params)
        limit = httpx.Timeout(wait_seconds + POLL_GRACE_SECONDS, connect=CONNECT_SECONDS)
        asked = {**(params or {}), "wait": str(int(wait_seconds))}
        return self._call("GET", path, params=asked, timeout=limit)

    def post(self, path: str, body: bytes) -> dict[str, Any]:
        return self._call("POST", path, content=body, headers={"Content-Type": "application/json"})

    def put_blob(self, sha256: str, body: bytes) -> None:
        kind = {"Content-Type": "application/json"}
        self._call("PUT", f"blobs/{sha256}", content=body, headers=kind)

    def close(self) -> None:
        self._client.close()

    def _call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """Raises DeskUnreachable, KeyRefused, or Refused with the status and the problem."""
        try:
            answer = self._client.request(method, path, **more)
        except httpx.HTTPError as error:
            why = f"{type(error).__name__}: {error}"
            raise DeskUnreachable(f"no answer from {self.address} ({why}). {CHECK}") from error
        if answer.status_code in NOT_NOW:
            raise DeskUnreachable(
                f"{self.address} answers {answer.status_code}: not now, try again.",
                retry_after=_retry_after(answer),
            )
        content = self._object(answer)
        if answer.status_code in (401, 403):
            raise KeyRefused(
                f"{self.address} refuses this API key: {in_words(content)}",
                by_somebody_else=answer.status_code == FORBIDDEN and "type" not in content,
            )
        if not answer.is_success:
            raise Refused(answer.status_code, content)
        return content

    def _object(self, answer: httpx.Response) -> dict[str, Any]:
        """What came as JSON; of an answer that is no desk's it says so, and whose it is."""
        if answer.is_success and not answer.content:
            return {}
        try:
            content = answer.json()
        except ValueError as error:
            if answer.is_success:
                raise DeskUnreachable(f"{self.address} answers, but {NO_DESK}") from error
            content = {}
        if not isinstance(content, dict):
            content = {"items": content}
        if not answer.is_success and "type" not in content:
            to = answer.headers.get("Location")
            said = in_words(content) if "title" in content else answer.reason_phrase
            at = f"{self.address}{f', which points to {to[:200]}' if to else ''}"
            content["title"] = f"{said} ({at}); {NO_DESK}"
        return content


def _retry_after(answer: httpx.Response) -> float:
    text = answer.headers.get("Retry-After", "")
    return min(float(text), 60.0) if text.isascii() and text.isdigit() else 0.0
