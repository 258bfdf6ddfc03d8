"""The verifier: one file that anybody saves, and checks a record with on a machine of their own.

It is made of `sdk-js/verifier` and lies in `static/`. Here it is a download, because opened on the
desk's own page it would be worth no more than that page.
"""

import hashlib
from functools import cache
from pathlib import Path

from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import condition, require_safe

NAME = "verifier.html"


@cache
def content() -> bytes:
    return Path(str(finders.find(NAME))).read_bytes()


@cache
def digest() -> str:
    """SHA-256 in hex, by which two copies are compared."""
    return hashlib.sha256(content()).hexdigest()


def _tag(_request: HttpRequest) -> str:
    return f'"{digest()}"'


@require_safe
@condition(etag_func=_tag)
def verifier(_request: HttpRequest) -> HttpResponse:
    """For everybody. A copy is kept and asked for by its tag: it fits the digest on the pages."""
    answer = HttpResponse(content(), content_type="text/html; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{NAME}"'
    answer["Cache-Control"] = "public, no-cache"
    return answer
