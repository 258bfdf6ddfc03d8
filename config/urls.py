"""The pages of every floor, and nothing else: each app names its own below."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, include, path
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import RedirectView

from config import company_login
from config.api import api
from edge.asgi import PROBLEM
from workspaces.pages import problem_response

handler400 = "config.middleware.not_understood"
handler500 = "config.middleware.failed"
LOG_IN = "w/<slug:workspace>/settings/log-in/"


@csrf_exempt
def directory(request: HttpRequest, workspace: str, rest: str) -> HttpResponse:
    """SCIM is imported at its first request: to build its schemas takes longer than to start."""
    from config import scim

    return scim.endpoint(request, workspace, rest)


@csrf_exempt
def no_such_path(_request: HttpRequest, rest: str) -> HttpResponse:
    """A program that mistypes a path reads what a program can read."""
    words = f"No “{rest}” is told of at /api/docs."
    kind = f"{PROBLEM}not-found"
    return problem_response(404, "There is nothing at this path", words, type=kind)


urlpatterns: list[URLPattern | URLResolver] = [
    path("accounts/", include("allauth.urls")),
    path("api/docs", RedirectView.as_view(url="/api/v1/docs"), name="api_docs"),
    path("api/v1/", api.urls),
    path("api/v1/<path:rest>", no_such_path),
    path("scim/v2/<slug:workspace>/<path:rest>", directory, name="scim"),
    path(LOG_IN, company_login.overview, name="company_login"),
    path(LOG_IN + "try/", company_login.try_it, name="try_company_login"),
    path(LOG_IN + "save/", company_login.save, name="save_company_login"),
    path(LOG_IN + "end/", company_login.end, name="end_company_login"),
    *(path("", include(f"{app}.urls")) for app in settings.FLOORS),
]
if settings.DEMO:
    urlpatterns.append(path("", include("demo.guide")))
