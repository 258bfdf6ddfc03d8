"""The OpenAPI page: drawn by a library, under our own policy of what a page may load."""

from tests.browser.conftest import Visit


def test_the_api_page_is_drawn_from_our_own_files_alone(visit: Visit) -> None:
    page = visit()

    page.goto("/api/v1/docs")

    page.get_by_text("What agents and people's scripts say").wait_for()
