"""In a real browser: what somebody typed before the session ended is there after the log-in."""

from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.test_record import sue
from workspaces.models import Team, User

__all__ = ["sue"]
SECRET = "a long enough secret"


def test_what_was_typed_waits_at_its_place_and_is_not_sent_by_itself(
    visit: Visit, sue: User
) -> None:
    page = visit(sue)
    page.goto("/w/northwind/settings/members/")
    name = page.locator('form[action$="/teams/"] input[name="name"]')
    name.fill("People who were asked")
    sue.set_password(SECRET)  # ends every session of hers
    sue.save()

    name.press("Enter")
    page.wait_for_url("**/accounts/login/**")
    page.fill('input[name="login"]', sue.email)
    page.fill('input[name="password"]', SECRET)
    page.get_by_role("button", name="Log in").click()

    page.wait_for_url("**/w/northwind/settings/members/")
    expect(name).to_have_value("People who were asked")
    assert not Team.objects.filter(name="People who were asked").exists()
    name.press("Enter")
    expect(name).to_have_value("")  # it was taken, and is forgotten here
    assert Team.objects.filter(name="People who were asked").exists()
