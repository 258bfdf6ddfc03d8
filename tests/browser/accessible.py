"""Is a page usable by everybody? axe-core says what a machine can see of it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Page, ViewportSize, expect

AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"]
BY_COLOUR = ["color-contrast", "link-in-text-block"]
"""The rules whose answer may be another one where nothing but the colours is."""
ON_ITS_WAY = ".htmx-request, .htmx-swapping, .htmx-settling, .htmx-added"
NODES_SHOWN = 5


Look = tuple[Literal["light", "dark"], ViewportSize]
"""The colours that a person prefers, and the size of their window."""


def in_each_look(page: Page, looks: Sequence[Look]) -> Iterator[Look]:
    """The page that is open, as it looks to each of these people."""
    for scheme, size in looks:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size(size)
        yield scheme, size


def assert_accessible(page: Page, *, rules: Sequence[str] = ()) -> None:
    """Fail with each violation of WCAG 2.2 AA, or of `rules`, its elements and how to mend them.

    What is judged is the page that is there when nothing is on its way any more.
    """
    page.wait_for_load_state()
    expect(page.locator(ON_ITS_WAY)).to_have_count(0)
    if page.evaluate("window.axe === undefined"):
        page.evaluate(AXE.read_text())  # over the debugger, so the page's own CSP stays as it is
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    else:
        options["runOnly"] = {"type": "tag", "values": TAGS}
        options["rules"] = {"target-size": {"enabled": True}}
    found: dict[str, Any] = page.evaluate("options => axe.run(document, options)", options)
    said = [line for violation in found["violations"] for line in lines(violation)]
    assert not said, f"{page.url} is not accessible:\n" + "\n".join(said)


def lines(violation: dict[str, Any]) -> list[str]:
    nodes = violation["nodes"]
    said = [f"{violation['id']} ({violation['impact']}): {violation['help']}"]
    for node in nodes[:NODES_SHOWN]:
        said += [f"    {node['html'][:200]}", f"        {node['failureSummary']}"]
    return said + ([f"    and {len(nodes) - NODES_SHOWN} more"] if len(nodes) > NODES_SHOWN else [])


CUT = """() => [...document.querySelectorAll("main :is(input, textarea), .topbar input")]
    .filter(field => field.checkVisibility() && !["checkbox", "radio"].includes(field.type))
    .filter(field => {
        const { font, paddingLeft, paddingRight } = getComputedStyle(field);
        const pen = Object.assign(document.createElement("canvas").getContext("2d"), { font });
        const room = field.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
        const lacks = field.matches("input") && pen.measureText(field.placeholder).width > room;
        return lacks || field.scrollWidth > field.clientWidth;
    })
    .map(field => field.value || field.placeholder)"""


def fields_cut(page: Page) -> list[str]:
    """What stands in fields, or what these say of themselves, and is wider than they are."""
    found: list[str] = page.evaluate(CUT)
    return found
