"""Static files, served by WhiteNoise before Django sees the request.

WhiteNoise's middleware is sync only; inside Django it would make the whole chain hold one thread
for each waiting request. So its file index is used here, from a small ASGI callable, and Django
stays async.
"""

import asyncio
import mimetypes
from typing import Any

from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.exceptions import SuspiciousFileOperation
from whitenoise.base import WhiteNoise
from whitenoise.responders import NOT_ALLOWED_RESPONSE, Response
from whitenoise.storage import CompressedManifestStaticFilesStorage

from workspaces.hot import Receive, Scope, Send

# A name with the hash of its content may be kept for good; any other is asked for again each time.
HASHED_NAME = r"\.[0-9a-f]{12}\.[a-z0-9]+$"
CHUNK_BYTES = 256 * 1024


class HashedStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # untyped
    """Names carry a hash, also those that an ES module imports, so browsers keep them for good."""

    support_js_module_import_aggregation = True


class Files:
    """ASGI callable for everything below STATIC_URL."""

    def __init__(self) -> None:
        mimetypes.add_type("text/javascript", ".js")
        self._index = WhiteNoise(
            None,
            max_age=0,
            allow_all_origins=False,
            immutable_file_test=HASHED_NAME,
            add_headers_function=self._add_headers,
        )
        if settings.HASHED_STATIC:
            self._index.add_files(settings.STATIC_ROOT, prefix=settings.STATIC_URL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._find(scope)
        status, headers = (
            (404, []) if response is None else (int(response.status), response.headers)
        )
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        file = response.file if response else None
        while file is not None and (chunk := await asyncio.to_thread(file.read, CHUNK_BYTES)):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if file is not None:
            file.close()
        await send({"type": "http.response.body", "body": b""})

    def _find(self, scope: Scope) -> Response | None:
        if scope["method"] not in {"GET", "HEAD"}:
            return NOT_ALLOWED_RESPONSE
        asked = {
            "HTTP_" + name.decode("latin-1").upper().replace("-", "_"): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        file = self._index.files.get(scope["path"]) or self._unhashed(scope["path"])
        return file.get_response(scope["method"], asked) if file else None

    def _unhashed(self, path: str) -> Any:
        """Without collected files (tests, DEBUG) each is looked up where it lives."""
        if settings.HASHED_STATIC:
            return None
        try:
            found = finders.find(path.removeprefix(settings.STATIC_URL))
        except SuspiciousFileOperation:  # a path that climbs out of the folder
            return None
        return self._index.get_static_file(found, path) if isinstance(found, str) else None

    @staticmethod
    def _add_headers(headers: Any, path: str, url: str) -> None:
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
