"""The verifier as somebody has it who saved it: opened from the disk, with the network off."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Browser, Locator, Page, expect

from config.local.places import ROOT
from ledger.views.events import VERIFIER
from tests.browser.conftest import DESKTOP, PHONE, listen
from tests.browser.trails import for_everybody
from tests.sdk import brought
from tests.sdk.test_proofs import COMMENTED

FILE = ROOT / "static" / VERIFIER
WORDS: dict[str, dict[str, Any]] = json.loads(
    (ROOT / "sdk-js" / "verifier" / "words.json").read_text("utf-8")
)
ENGLISH = WORDS["en"]
# What a browser without Ed25519 answers (Chrome before 137, Firefox before 129, Safari before 17).
OLDER = "crypto.subtle.importKey = () => Promise.reject(new DOMException('', 'NotSupportedError'))"


@pytest.fixture
def opened(browser: Browser) -> Iterator[Any]:
    """The saved page in a browser whose network is off; whatever it asks for fails the test."""
    wrong: list[str] = []
    contexts = []

    def open_page(file: Path = FILE, *, script: str = "", **options: Any) -> Page:
        offline: dict[str, Any] = {"offline": True, "viewport": DESKTOP}
        context = browser.new_context(**offline | options)
        contexts.append(context)
        page = context.new_page()
        if script:
            page.add_init_script(script)
        listen(page, wrong)
        page.on("request", lambda one: wrong.append(one.url) if one.url != file.as_uri() else None)
        page.goto(file.as_uri())
        context.set_offline(False)  # a page from the disk hears of it only once it is there
        context.set_offline(True)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong, "\n".join(wrong)


def give(page: Page, record: str | Path, key: str) -> Locator:
    """Choose the record and paste the key, and press the button."""
    if isinstance(record, Path):
        page.get_by_label("1.").set_input_files(record)
    else:
        page.get_by_label("1.").set_input_files(
            {"name": "record.json", "mimeType": "text/plain", "buffer": record.encode()}
        )
    page.locator("textarea").fill(key)
    page.locator("form button").press("Enter")
    return page.locator("#verdict")


def test_it_says_of_whatever_is_brought_what_the_clients_say(opened: Any) -> None:
    page, wrong = opened(), {}
    for one in brought.everything():
        said = give(page, one.text, one.key)
        expect(said).to_be_focused()
        words = said.inner_text()
        if one.reason:
            wanted = ("✕ Not proven", ENGLISH["reasons"][one.reason])
        elif one.text.startswith("{"):
            wanted = ("✓ As it was recorded", ENGLISH["provenEvent"])
        else:
            wanted = ("✓ As it was recorded", ENGLISH["provenEntry"])
        if tuple(line for line in words.split("\n") if line)[:2] != wanted:
            wrong[one.name] = words
        if one.reason and page.locator("#told").inner_text():
            wrong[one.name] = "it shows what was not proven"

    assert wrong == {}


def test_a_proven_record_is_read_there_and_what_is_not_proven_is_named(opened: Any) -> None:
    document, log = brought.record()
    page = opened()

    give(page, json.dumps(document | {"title": "I was paid"}), f"{log.key}\n")

    told = page.locator("#told")
    expect(told.get_by_role("heading", name=brought.WORDS["title"])).to_be_visible()
    for words in (
        brought.WORDS["lead"], "It is normal again.", "We wrote to you about it.", log.origin,
        "Please move ⟦U+202E⟧my flight, n⟦U+0336⟧ot now", "number 2 of 5", str(log.key),
        "2026-11-21T10:02:15.120034Z", "Other parts of the file prove nothing: title.",
    ):  # fmt: skip
        expect(told).to_contain_text(words)
    assert told.locator("section > p").first.inner_text() == brought.WORDS["lead"]
    for text in told.locator("p, ul, dl, dd").all():  # the page's own distances, not a browser's
        assert text.evaluate("one => getComputedStyle(one).marginBlockEnd") == "0px"
    expect(told).not_to_contain_text("I was paid")
    expect(told.locator("ul")).not_to_contain_text("Nobody can take it back.")  # worded anew
    told.get_by_text("letter by letter").click()
    expect(told.locator("pre")).to_contain_text(f'"number": {brought.WIDE}')


def test_what_an_agent_says_is_not_read_as_a_correction(opened: Any) -> None:
    """Its event may hold such digests, too, for members that nobody reads are kept."""
    document, log = brought.record(kind="action.succeeded")
    page = opened()

    give(page, json.dumps(document), f"{log.key}\n")

    told = page.locator("#told")
    expect(told).to_contain_text("action.succeeded")
    expect(told.get_by_role("heading", name=brought.WORDS["title"])).to_have_count(0)
    expect(told.locator("pre").first).to_contain_text("facts_digest")


def test_a_decision_is_said_to_be_signed_by_its_person(opened: Any) -> None:
    document, log = brought.decision(brought.Signer(-7))
    page = opened()

    give(page, json.dumps(document), str(log.key))
    expect(page.locator("#told")).to_contain_text(f"by the person themselves, on {brought.DESK}")
    alone = {name: document[name] for name in ("event", "salt", "proof")}
    give(page, json.dumps(alone), str(log.key))
    expect(page.locator("#told")).to_contain_text("approval.granted")
    expect(page.locator("#told")).not_to_contain_text("by the person themselves")


def test_files_go_where_they_belong_wherever_they_are_dropped(opened: Any) -> None:
    document, log = brought.record()
    key = COMMENTED.format(log.key)
    page, files = opened(), {"log.pub": key, "correction.json": json.dumps(document)}
    held = page.evaluate_handle(
        """files => {
          const held = new DataTransfer();
          for (const [name, text] of Object.entries(files)) held.items.add(new File([text], name));
          return held;
        }""",
        files,
    )

    page.dispatch_event("h1", "drop", {"dataTransfer": held})

    expect(page.locator("#verdict")).to_contain_text("As it was recorded")
    assert page.locator("textarea").input_value() == f"{log.key}\n"
    chosen = "input => input.files[0].name"
    assert page.get_by_label("1.").evaluate(chosen) == "correction.json"
    assert page.get_by_label("2.").evaluate(chosen) == "log.pub"
    expect(give(page, json.dumps(document), key)).to_contain_text("As it was recorded")
    nothing = COMMENTED.format("")
    expect(give(page, json.dumps(document), nothing)).to_contain_text(ENGLISH["needsKey"])


def test_what_is_missing_or_cannot_be_read_is_said(opened: Any, tmp_path: Path) -> None:
    document, log = brought.record()
    page, key = opened(), str(log.key)
    page.locator("form button").click()
    said = page.locator("#verdict")
    expect(said).to_contain_text(ENGLISH["needsRecord"])
    expect(give(page, json.dumps(document), "")).to_contain_text(ENGLISH["needsKey"])
    picture, film, record = (tmp_path / name for name in ("a.png", "a.webm", "a.json"))
    picture.write_bytes(b"\xff\xfe\x00")
    film.write_bytes(b" " * (16 * 1024 * 1024 + 1))
    record.write_text(json.dumps(document | {"note": "x" * 15_000_000}), "utf-8")
    expect(give(page, picture, key)).to_contain_text(ENGLISH["noText"])
    expect(give(page, film, key)).to_contain_text(ENGLISH["tooLarge"])
    expect(give(page, record, key)).to_contain_text("As it was recorded")
    record.write_text("{}", "utf-8")
    page.locator("form button").press("Enter")
    expect(said).to_contain_text(ENGLISH["unreadable"])
    expect(give(page, record, key)).to_contain_text(ENGLISH["reasons"]["form"])

    older = opened(script=OLDER)
    expect(older.locator("#verdict")).to_contain_text(ENGLISH["unable"])
    expect(older.locator("form")).to_be_hidden()


def test_each_language_is_spoken_and_each_look_is_for_everybody(opened: Any) -> None:
    document, log = brought.record()
    swiss = opened(locale="de-CH", viewport=PHONE)
    expect(swiss.locator("h1")).to_have_text(WORDS["de"]["title"])
    forged = json.dumps(document | {"words": {}})
    for code, words in WORDS.items():
        swiss.locator(f"#languages [lang={code}]").click()
        expect(swiss.locator("html")).to_have_attribute("lang", code)
        expect(swiss.locator("#network")).to_have_text(words["offline"])
        give(swiss, json.dumps(document), str(log.key))
        expect(swiss.locator("#verdict")).to_contain_text(words["proven"])
        expect(swiss.locator("footer")).to_have_text(words["limits"])
        for_everybody(swiss)
        give(swiss, forged, str(log.key))
        expect(swiss.locator("#verdict")).to_contain_text(words["reasons"]["words"])
        assert swiss.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for_everybody(swiss)
    expect(opened(locale="it-IT").locator("h1")).to_have_text(ENGLISH["title"])


def test_its_own_policy_lets_it_ask_nobody(browser: Browser, web_process: Any) -> None:
    """With the network on, and a server there that would answer."""
    web_process.wait_until_ready()
    page = browser.new_page()
    page.goto(FILE.as_uri())

    asked = page.evaluate(
        """async url => [
          await fetch(url, { mode: "no-cors" }).then(() => "fetched", () => "refused"),
          await new Promise((told) => {
            const picture = new Image();
            picture.onload = picture.onerror = (event) => told(event.type);
            picture.src = `${url}static/favicon.svg`;
          }),
        ]""",
        f"{web_process.url}/",
    )

    assert asked == ["refused", "error"]
    page.close()


def test_it_is_handed_out_to_everybody_and_kept_by_its_tag(client: Any) -> None:
    answer = client.get(reverse("ledger:verifier"))

    assert answer.content == FILE.read_bytes()
    assert answer.headers["Content-Disposition"] == 'attachment; filename="verifier.html"'
    assert answer.headers["Cache-Control"] == "public, no-cache"
    assert not answer.cookies
    again = client.get("/verifier.html", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
