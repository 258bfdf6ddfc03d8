from django.urls import path

from recovery.views import (
    bulk,
    case,
    causes,
    close,
    compensate,
    corrections,
    insights,
    public,
    queue,
    resume,
    saved_views,
    settle,
)

app_name = "recovery"

HERE = "w/<slug:workspace>/"
CASE = HERE + "cases/<int:pk>/"
CORRECTION = HERE + "corrections/<int:pk>/"

urlpatterns = [
    path(HERE + "queue/", queue.queue, name="queue"),
    path(HERE + "queue/fresh/", queue.fresh, name="fresh"),
    path(HERE + "queue/suggest/", queue.suggest, name="suggest"),
    path(HERE + "queue/claim/", queue.claim, name="claim_chosen"),
    path(HERE + "views/", saved_views.views, name="views"),
    path(HERE + "views/new/", saved_views.save, name="view_new"),
    path(HERE + "views/<slug:slug>/", saved_views.view, name="view"),
    path(HERE + "views/<slug:slug>/remove/", saved_views.remove, name="view_remove"),
    path(HERE + "causes/", causes.cause_list, name="causes"),
    path(HERE + "causes/<str:fingerprint>/", causes.cause, name="cause"),
    path(HERE + "bulk/", bulk.jobs, name="bulk"),
    path(HERE + "bulk/new/", bulk.new, name="bulk_new"),
    path(HERE + "bulk/<int:pk>/", bulk.job, name="bulk_job"),
    path(HERE + "bulk/<int:pk>/progress/", bulk.progress, name="bulk_progress"),
    path(HERE + "bulk/<int:pk>/stop/", bulk.stop, name="bulk_stop"),
    path(HERE + "residue/", close.residue_list, name="residues"),
    path(HERE + "residue/<int:pk>/", close.residue, name="residue"),
    path(HERE + "insights/", insights.insights, name="insights"),
    path(HERE + "x/<path:query>", queue.jump, name="jump"),
    path(CASE, case.case, name="case"),
    path(CASE + "outlook/", case.outlook, name="outlook"),
    path(CASE + "progress/", case.progress, name="progress"),
    path(CASE + "claim/", case.claim, name="claim"),
    path(CASE + "comment/", case.comment, name="comment"),
    path(CASE + "stop/", case.stop, name="stop"),
    path(CASE + "reopen/", case.reopen, name="reopen"),
    path(CASE + "compensate/", compensate.compensate, name="compensate"),
    path(CASE + "resume/", resume.resume, name="resume"),
    path(CASE + "settle/", settle.settle, name="settle"),
    path(CASE + "confirm/", settle.confirm, name="confirm"),
    path(CASE + "pause/", case.pause, name="pause"),
    path(CASE + "close/", close.close, name="close"),
    path(HERE + "report/<path:run>/", case.report, name="report"),
    path(HERE + "corrections/", corrections.correction_list, name="corrections"),
    path(CORRECTION, corrections.correction, name="correction"),
    path(CORRECTION + "save/", corrections.save, name="correction_save"),
    path(CORRECTION + "publish/", corrections.publish, name="correction_publish"),
    path(CORRECTION + "revoke/", corrections.revoke, name="correction_revoke"),
    path(CORRECTION + "preview/", corrections.preview, name="correction_preview"),
    path("c/<str:token>/", public.trail, name="trail"),
    path("c/<str:token>/record.json", public.record, name="trail_record"),
    path("c/<str:token>/verify/", public.verify, name="trail_verify"),
    path("c/<str:token>/report/", public.report, name="trail_report"),
]
