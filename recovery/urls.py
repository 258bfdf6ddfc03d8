from django.urls import path

from recovery.views import case, close, compensate, corrections, public, queue, resume, settle

app_name = "recovery"

HERE = "w/<slug:workspace>/"
CASE = HERE + "cases/<int:pk>/"
CORRECTION = HERE + "corrections/<int:pk>/"

urlpatterns = [
    path(HERE + "queue/", queue.queue, name="queue"),
    path(HERE + "queue/fresh/", queue.fresh, name="fresh"),
    path(HERE + "queue/claim/", queue.claim, name="claim_chosen"),
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
    path(CASE + "close/", close.close, name="close"),
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
