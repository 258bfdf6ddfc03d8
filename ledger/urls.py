from django.urls import path

from ledger.views import events, retention, runs

app_name = "ledger"

HERE = "w/<slug:workspace>/"

urlpatterns = [
    path("verifier.html", events.verifier, name="verifier"),
    path(HERE + "settings/keys/<int:pk>/first/", runs.first_of_key, name="first_of_key"),
    path(HERE + "settings/kept/", retention.kept, name="kept"),
    path(HERE + "settings/kept/progress/", retention.progress, name="kept_progress"),
    path(HERE + "audit/", events.acts, name="audit"),
    path(HERE + "runs/", runs.runs, name="runs"),
    path(HERE + "runs/<path:run>/", runs.run, name="run"),
    path(HERE + "reveal/<path:run>/", runs.reveal, name="reveal"),
    path(HERE + "ledger/", events.events, name="events"),
    path(HERE + "ledger/snapshots/<str:sha256>/", events.snapshot, name="snapshot"),
    path(HERE + "ledger/verify/", events.verify, name="verify"),
    path(HERE + "ledger/event/<path:event>/", events.event, name="event"),
    path(HERE + "ledger/proof/<path:event>/", events.proof, name="proof"),
    path(HERE + "ledger/download/<path:event>/", events.download, name="download"),
    path(HERE + "ledger/reveal/<path:event>/", events.reveal, name="reveal_event"),
    path(HERE + "ledger/<path:event>/", events.event),  # as links had it that people have kept
]
"""What is asked stands before the id: agents name runs and events, also `verify` or `x/proof`."""
