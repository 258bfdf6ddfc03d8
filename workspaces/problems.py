"""What a view or an operation answers that cannot be served: an RFC 9457 problem.

In front of Django the same is `edge.asgi.Problem`.
"""

from typing import Any

from django.http import JsonResponse

CONTENT_TYPE = "application/problem+json"


def problem_response(status: int, title: str, detail: str = "", **more: Any) -> JsonResponse:
    """The answer; `more` are further members, of which its documentation tells."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return JsonResponse(body, status=status, content_type=CONTENT_TYPE)
