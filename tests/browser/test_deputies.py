"""Who decides for whom, a broken glass and the directory, in each look."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from approvals import glass_decisions
from approvals.models import Approval
from approvals.policy import RequiredApprovers
from tests.approvals.cast import asker, put_in_force
from tests.browser.accessible import Look, assert_accessible, in_each_look
from tests.browser.conftest import DESKTOP, PHONE, Visit
from tests.people import person
from workspaces import delegations, directory, keys, teams
from workspaces.delegations import Term
from workspaces.models import User, Workspace

LOOKS: list[Look] = [
    (scheme, size) for scheme in ("light", "dark") for size in (DESKTOP, PHONE)
]  # fmt: skip


@pytest.fixture
def cast(acme: Workspace) -> dict[str, User]:
    may: dict[str, tuple[Any, ...]] = {
        "operators": ("view", "recover", "administer"), "finance": ("view", "approve"),
        "viewers": ("view",), "agents": ("view", "recover"),
    }  # fmt: skip
    found = {name: teams.create(acme, name, by=None, may=rights) for name, rights in may.items()}
    return {
        name: person(name, found[stands])
        for name, stands in (("ada", "operators"), ("olga", "operators"), ("ben", "finance"),
                             ("dora", "viewers"), ("eli", "agents"))
    }  # fmt: skip


def test_pages_of_deputies_glass_and_directory_in_each_look(
    visit: Visit, acme: Workspace, cast: dict[str, User]
) -> None:
    ada, ben, dora = cast["ada"], cast["ben"], cast["dora"]
    put_in_force(acme, ada, {"policies": {}, "breakGlass": {"after": "0s"}})
    approval = asker(acme, cast["eli"])(RequiredApprovers("finance", 1))
    now = timezone.now()
    delegations.give(
        acme, by=ben, to=dora, team=acme.teams.get(name="finance"),
        term=Term(now, now + timedelta(days=7)), reason="on holiday; call me if it burns",
    )  # fmt: skip
    glass_decisions.agree(
        Approval.objects.get(pk=approval.pk), by=cast["olga"], seen=approval.digest,
        reason="finance is on a plane", login_at=now,
    )  # fmt: skip
    keys.create_directory_token(acme, by=ada, name="Entra ID")
    directory.hand_over(acme.teams.get(name="viewers"), by=ada)

    card = f"/w/acme/approvals/{approval.pk}/"
    for who, places in (
        (dora, (card,)),
        (ben, ("/w/acme/settings/members/", "/w/acme/approvals/health/")),
        (ada, (card, "/w/acme/settings/directory/")),
    ):
        page = visit(who)
        for place in places:
            page.goto(place)
            page.eval_on_selector_all("details.more", "all => all.forEach(one => one.open = true)")
            for _, size in in_each_look(page, LOOKS):
                assert_accessible(page)
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= size["width"], f"{place} is {wide} wide"
