"""Corrections: what one affected person is told about one case.

Facts are drafted from the ledger by templates, never by a model; the wording may be edited, the
facts may not. Publishing gives the correction its link and its entry in the log.
"""

from recovery.corrections.contesting import LinkGone, TooManyReports, contest
from recovery.corrections.drafting import draft, edit
from recovery.corrections.publishing import (
    CannotPublish,
    find,
    hand_on,
    link_of,
    publish,
    revoke,
)

__all__ = [
    "CannotPublish",
    "LinkGone",
    "TooManyReports",
    "contest",
    "draft",
    "edit",
    "find",
    "hand_on",
    "link_of",
    "publish",
    "revoke",
]
