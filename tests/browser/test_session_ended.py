"""In a real browser: what somebody typed before the session ended is there after the log-in."""

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Visit
from tests.browser.test_record import sue
from tests.people import person
from workspaces.models import Team, User

__all__ = ["sue"]
SECRET = "a long enough secret"


def log_in(page: Page, person: User) -> None:
    page.wait_for_url("**/accounts/login/**")
    page.fill('input[name="login"]', person.email)
    page.fill('input[name="password"]', SECRET)
    page.get_by_role("button", name="Log in").click()


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
    log_in(page, sue)

    page.wait_for_url("**/w/northwind/settings/members/")
    expect(name).to_have_value("People who were asked")
    assert not Team.objects.filter(name="People who were asked").exists()
    name.press("Enter")
    expect(name).to_have_value("")  # it was taken, and is forgotten here
    assert Team.objects.filter(name="People who were asked").exists()


def test_another_person_who_logs_in_is_given_nothing_of_what_was_typed(
    visit: Visit, sue: User
) -> None:
    page = visit(sue)
    page.goto("/w/northwind/settings/members/")
    name = page.locator('form[action$="/teams/"] input[name="name"]')
    name.fill("People who were asked")
    sue.set_password(SECRET)
    sue.save()
    tom = person("tom", Team.objects.get())
    tom.set_password(SECRET)
    tom.save()

    name.press("Enter")
    log_in(page, tom)

    page.wait_for_url("**/w/northwind/settings/members/")
    page.locator("html.js").wait_for(state="attached")
    expect(name).to_have_value("")


def test_what_was_changed_comes_back_over_what_stood_there_and_into_no_other_form(
    visit: Visit, sue: User
) -> None:
    page = visit(sue)
    page.goto("/w/northwind/settings/")  # two forms of one address, each with a field `name`
    page.locator("#id_name").fill("Northwind Air")
    sue.name = ""
    sue.set_password(SECRET)
    sue.save()

    page.get_by_role("button", name="Save the workspace").click()
    log_in(page, sue)

    page.wait_for_url("**/w/northwind/settings/")
    expect(page.locator("#id_name")).to_have_value("Northwind Air")
    expect(page.locator("#id_own_name")).to_have_value("")


def test_what_a_page_of_the_version_before_kept_comes_back_too(visit: Visit, sue: User) -> None:
    """It kept the text alone. Pages stand open while the desk is updated."""
    page = visit(sue)
    page.goto("/w/northwind/settings/members/")
    field = 'form[action$="/teams/"] input[name="name"]'
    page.evaluate(
        "field => sessionStorage.setItem(`amends.kept:${location.pathname.replace('members/',"
        " 'teams/')}:${field.id || field.name}`, 'People who were asked')",
        page.locator(field).element_handle(),
    )

    page.reload()

    expect(page.locator(field)).to_have_value("People who were asked")


def test_a_page_is_not_loaded_anew_under_a_hand_that_has_begun_to_type(
    visit: Visit, sue: User
) -> None:
    page = visit(sue)
    page.goto("/w/northwind/settings/members/")
    name = page.locator('form[action$="/teams/"] input[name="name"]')
    asked = []

    def over(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:  # she begins while the first answer is on its way
            name.type("People")
        route.fulfill(headers={"HX-Refresh": "true"})

    page.route("**/over/", over)
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend',"
        " '<section id=over data-poll=\"/over/\"></section>')"
    )
    expect(name).to_have_value("People")
    page.wait_for_timeout(500)  # as long as a page that is loaded anew takes

    name.type(" who")
    assert page.locator("#over").count() == 1
    with page.expect_navigation():
        name.blur()
    expect(name).to_have_value("People who")
    expect(page.locator("#over")).to_have_count(0)
    assert len(asked) == 2


def test_a_page_that_is_being_left_is_not_loaded_anew_under_it(visit: Visit, sue: User) -> None:
    page = visit(sue)
    page.goto("/w/northwind/settings/members/")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/queue/", hold)
    page.route("**/over/", lambda route: route.fulfill(headers={"HX-Refresh": "true"}))

    with page.expect_response("**/over/"):
        page.evaluate(
            "document.querySelector('main').insertAdjacentHTML('beforeend',"
            " '<section id=over data-poll=\"/over/\"></section>');"
            "setTimeout(() => document.querySelector('nav a[href$=\"/queue/\"]').click())"
        )
    page.wait_for_timeout(500)  # as long as a page takes that is loaded anew, which ends the other
    held.pop().continue_()

    page.wait_for_url("**/queue/")
