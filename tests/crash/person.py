"""Somebody at a browser: opens pages and sends forms to a web process that really runs."""

import secrets
import time
import urllib.parse
import urllib.request
from urllib.error import HTTPError

from django.conf import settings

from approvals.models import Approval
from tests.people import logged_in
from workspaces.models import User, Workspace

ANSWER_SECONDS_MAX = 30


class Person:
    """Logged in already, as if it were yesterday."""

    def __init__(self, who: User, url: str, here: Workspace) -> None:
        browser = logged_in(who)
        self._url = f"{url}/w/{here.slug}/"
        self._token = secrets.token_hex(16)
        self._cookies = (
            f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"
            f"; {settings.CSRF_COOKIE_NAME}={self._token}"
        )

    def opens(self, path: str) -> int:
        """A page of the workspace; the status of the answer."""
        return self._ask(path, None)

    def approves(self, approval: Approval) -> float:
        """Say yes to it; the seconds that it took. Fails unless the yes was taken."""
        form = {"decision": "grant", "digest": approval.digest, "reason": "checked"}
        began = time.monotonic()
        status = self.decides(approval, **form)
        seconds = time.monotonic() - began
        assert status == 200, status
        approval.refresh_from_db()
        assert approval.decisions.filter(granted=True).exists()
        return seconds

    def decides(self, approval: Approval, **form: str) -> int:
        return self._ask(f"approvals/{approval.pk}/decide/", form)

    def _ask(self, path: str, form: dict[str, str] | None) -> int:
        content = None
        if form is not None:
            said = form | {"csrfmiddlewaretoken": self._token}
            content = urllib.parse.urlencode(said).encode()
        asked = urllib.request.Request(self._url + path, content, {"cookie": self._cookies})
        try:
            with urllib.request.urlopen(asked, timeout=ANSWER_SECONDS_MAX) as answer:
                answer.read()
                return int(answer.status)
        except HTTPError as error:
            return error.code
