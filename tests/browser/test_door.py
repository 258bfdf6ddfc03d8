"""What anybody meets who comes to the wrong door."""

import pytest

from tests.browser.accessible import assert_accessible
from tests.browser.conftest import PHONE, Visit


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_wrong_address_is_answered_with_a_page_that_everybody_can_use(
    visit: Visit, scheme: str
) -> None:
    page = visit(color_scheme=scheme, viewport=PHONE)

    answer = page.goto("/nowhere/")

    assert answer is not None
    assert answer.status == 404
    assert_accessible(page)
