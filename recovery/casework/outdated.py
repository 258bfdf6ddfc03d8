"""What is said to somebody who acts on a page that is no longer how things stand."""

from __future__ import annotations

from recovery.models import Case


class OutOfDate(Exception):
    """We stopped because the case is no longer as it was shown. Nothing was changed: show it."""

    def __init__(
        self, case: Case, why: str = "Somebody changed this case since you saw it."
    ) -> None:
        super().__init__(why)
        self.case = case
