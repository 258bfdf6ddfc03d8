"""What is said of every page of Django's. In the event loop or in a thread, as the view is."""

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

Answer = HttpResponse | Awaitable[HttpResponse]


class NoStore:
    """No browser and no proxy keeps a page: after a log-out, *back* shows nothing of a workspace.

    A view that knows better says so itself. Static files never come here.
    """

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Answer]) -> None:
        self._get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Answer:
        answer = self._get_response(request)
        return marked(answer) if isinstance(answer, HttpResponse) else self._awaited(answer)

    async def _awaited(self, answer: Awaitable[HttpResponse]) -> HttpResponse:
        return marked(await answer)


def marked(answer: HttpResponse) -> HttpResponse:
    answer.headers.setdefault("Cache-Control", "no-store")
    return answer
