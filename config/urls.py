"""The pages of every floor, and nothing else: each app names its own below."""

from django.conf import settings
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

from config import scim
from config.api import api

handler400 = "config.middleware.not_understood"
handler500 = "config.middleware.failed"
FLOORS = ("workspaces", "ledger", "connectors", "approvals", "recovery")

urlpatterns: list[URLPattern | URLResolver] = [
    path("accounts/", include("allauth.urls")),
    path("api/docs", RedirectView.as_view(url="/api/v1/docs"), name="api_docs"),
    path("api/v1/", api.urls),
    path("scim/v2/<slug:workspace>/<path:rest>", scim.endpoint, name="scim"),
    *(path("", include(f"{app}.urls")) for app in FLOORS),
]
if settings.DEMO:
    urlpatterns.append(path("", include("demo.guide")))
