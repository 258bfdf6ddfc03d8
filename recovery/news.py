"""Whether a queue may have news: a case was opened or closed since."""

from workspaces.news import route_of_news

NEWS = """
    EXISTS (SELECT FROM recovery_case c WHERE c.workspace_id = w.id AND c.opened_at > %(heard)s
        AND NOT c.without_effects)
    OR EXISTS (SELECT FROM recovery_case c WHERE c.workspace_id = w.id AND c.closed_at > %(heard)s
        AND NOT c.without_effects)
"""

routes = [route_of_news(r"/w/(?P<workspace>[-a-zA-Z0-9_]{1,80})/queue/fresh/", NEWS)]
