"""Whether an inbox has news: something was asked or decided since, or this person has answered.

Ids and the time of asking rise together, so the newest approval speaks for all.
"""

from workspaces.news import route_of_news

NEWS = """
    coalesce((SELECT a.asked_at > %(since)s FROM approvals_approval a
        WHERE a.workspace_id = w.id ORDER BY a.id DESC LIMIT 1), false)
    OR EXISTS (SELECT FROM approvals_approval a
        WHERE a.workspace_id = w.id AND a.decided_at > %(since)s)
    OR EXISTS (SELECT FROM approvals_decision d WHERE d.person_id = u.id AND d.at > %(since)s)"""

routes = [route_of_news(r"/w/(?P<workspace>[-a-zA-Z0-9_]{1,80})/approvals/fresh/", NEWS)]
