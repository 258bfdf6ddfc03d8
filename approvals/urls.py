from django.urls import path

from approvals.views import (
    answers,
    asked,
    card,
    group,
    health_page,
    lists,
    named_lists,
    own_settings,
    policies,
    policy_editor,
)

app_name = "approvals"

HERE = "w/<slug:workspace>/"

urlpatterns = [
    path("ask/<str:token>/", asked.asked, name="asked"),
    path("summary/stop/<str:token>/", own_settings.stop, name="stop_summary"),
    path(HERE + "approvals/", lists.inbox_list, name="inbox"),
    path(HERE + "approvals/fresh/", lists.fresh, name="fresh"),
    path(HERE + "approvals/history/", lists.history, name="history"),
    path(HERE + "approvals/health/", health_page.approval_health, name="health"),
    path(HERE + "approvals/health/proposal/", health_page.proposal, name="proposal"),
    path(HERE + "approvals/grants/", answers.grants_list, name="grants"),
    path(HERE + "approvals/<int:pk>/outcome/", card.outcome, name="outcome"),
    path(HERE + "approvals/<int:pk>/", card.card, name="card"),
    path(HERE + "approvals/<int:pk>/<slug:name>.json", card.document, name="document"),
    path(HERE + "approvals/<int:pk>/decide/", card.decide, name="decide"),
    path(HERE + "approvals/<int:pk>/change/", card.change, name="change"),
    path(HERE + "approvals/<int:pk>/alike/", group.group, name="group"),
    path(HERE + "approvals/<int:pk>/alike/decide/", group.decide, name="group_decide"),
    path(HERE + "approvals/<int:pk>/more/", answers.approve_with_more, name="more"),
    path(HERE + "approvals/<int:pk>/later/", answers.approve_later, name="later"),
    path(HERE + "approvals/<int:pk>/break-glass/", answers.break_glass, name="break_glass"),
    path(
        HERE + "approvals/<int:pk>/break-glass/review/", answers.review_glass, name="review_glass"
    ),
    path(HERE + "approvals/<int:pk>/revoke/", answers.revoke, name="revoke"),
    path(HERE + "approvals/<int:pk>/withdraw/", card.withdraw, name="withdraw"),
    path(HERE + "approvals/<int:pk>/ask/", card.ask, name="ask"),
    path(HERE + "approvals/<int:pk>/answer/<int:enquiry>/", card.answer, name="answer"),
    path(HERE + "approvals/<int:pk>/signed/<int:decision>/", own_settings.signed, name="signed"),
    path(HERE + "settings/signing-keys/", own_settings.keys, name="signing_keys"),
    path(HERE + "settings/signing-keys/<int:pk>/", own_settings.enrol, name="signing_key_enrol"),
    path(HERE + "settings/summary/", own_settings.summary, name="summary"),
    path(HERE + "policies/", policies.policies, name="policies"),
    path(HERE + "policies/new/", policy_editor.edit, name="policy_new"),
    path(HERE + "policies/pauses/", policies.pause, name="pause"),
    path(HERE + "policies/pauses/<int:pk>/lift/", policies.lift, name="lift"),
    path(HERE + "policies/lists/", named_lists.index, name="named_lists"),
    path(HERE + "policies/lists/<slug:name>/", named_lists.one_list, name="named_list"),
    path(HERE + "policies/lists/<slug:name>/change/", named_lists.change, name="named_list_change"),
    path(HERE + "policies/reported/", lists.would_have_asked, name="reported"),
    path(HERE + "policies/<int:number>/", policies.version, name="version"),
    path(HERE + "policies/<int:number>/activate/", policies.activate, name="activate"),
    path(HERE + "policies/<int:number>/shadow/", policies.shadow, name="shadow"),
    path(HERE + "tools/", policies.tools, name="tools"),
]
