"""How values become words on a page."""

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from django.template import Context, Template
from django.test import RequestFactory
from django.utils import timezone

from connectors.contract import Money
from workspaces import formatting
from workspaces.templatetags import places

NOW = datetime(2026, 11, 21, 10, 43, 15, tzinfo=UTC)


def shown(source: str, **context: object) -> str:
    return Template("{% load formatting %}" + source).render(Context(context))


@pytest.mark.parametrize(
    ("minor", "currency", "text"),
    [
        (128600, "USD", "$1\u00a0286.00"),
        (-500, "eur", "\u2212€5.00"),
        (5000, "JPY", "¥5\u00a0000"),
        (1234567, "CHF", "12\u00a0345.67\u00a0CHF"),
        (1500, "KWD", "1.500\u00a0KWD"),
        (1500, "UGX", "1\u00a0500\u00a0UGX"),
        (5000, "CLF", "0.5000\u00a0CLF"),
        (-12345, "UYW", "\u22121.2345\u00a0UYW"),
        (5000, "MGA", "50.00\u00a0MGA"),
    ],
)
def test_money_is_written_in_its_own_digits(minor, currency, text):
    assert formatting.money(minor, currency) == text == str(Money(minor, currency))


@pytest.mark.parametrize(
    "currency", ["u\u017fd", "USDT", "US", "\uff35\uff33\uff24", "", None, 840]
)
def test_what_only_reads_as_a_currency_is_none(currency):
    assert Money.of(5000, currency) is None


def test_money_keeps_every_cent_of_a_large_amount():
    assert formatting.money(10**17 + 1, "USD").endswith(".01")
    longest = formatting.money(12345678901234567890123456789012345, "USD")
    assert longest.replace("\u00a0", "") == "$123456789012345678901234567890123.45"
    assert formatting.money(-(10**40) - 5, "KWD").endswith("\u00a0000.005\u00a0KWD")


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(seconds=9), "9 s"),
        (timedelta(minutes=41, seconds=30), "41 min"),
        (timedelta(hours=1, minutes=5), "1 h 05 min"),
        (timedelta(hours=5), "5 h"),
        (timedelta(days=2, hours=4), "2 d 4 h"),
        (timedelta(days=29, hours=4), "29 d"),
    ],
)
def test_a_length_of_time_has_at_most_two_units(length, text):
    assert formatting.span(length) == text


def test_a_moment_keeps_the_exact_time_behind_the_relative_one():
    with timezone.override(ZoneInfo("America/New_York")):
        html = formatting.moment(NOW - timedelta(minutes=41), now=NOW)

    assert "41 min ago</time>" in html
    assert 'datetime="2026-11-21T10:02:15Z"' in html
    assert 'data-exact="2026-11-21 05:02:15 EST = 10:02:15 UTC"' in html


def test_behind_a_moment_of_another_day_there_is_the_day_of_utc_too_and_utc_stands_once():
    late = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)

    with timezone.override(ZoneInfo("Asia/Tokyo")):
        in_tokyo = formatting.moment(late, "day")

    assert ">2026-11-22</time>" in in_tokyo
    assert 'data-exact="2026-11-22 08:30:00 JST = 2026-11-21 23:30:00 UTC"' in in_tokyo
    assert 'data-exact="2026-11-21 23:30:00 UTC"' in formatting.moment(late)


def test_a_moment_to_come_says_so_and_none_is_a_dash():
    assert "in 12 min</time>" in formatting.moment(NOW + timedelta(minutes=12), now=NOW)
    assert formatting.moment(None) == "—"


@pytest.mark.parametrize(
    "hidden", ["\u202e", "\u200b", "\u2066", "\ufeff", "\u0000", "\u2028", "\U000e0041", "\u3164"]
)
def test_what_hides_or_reorders_text_is_made_visible(hidden):
    html = formatting.visible(f"cheapest{hidden} option")

    assert hidden not in html
    assert f"⟦U+{ord(hidden):04X}⟧" in html
    assert formatting.hidden_count(f"cheapest{hidden} option") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p\u0430yments.transfer", "p⟦U+0430⟧yments.transfer"),
        ("\u0441\u043e\u0440\u0443.all", "⟦U+0441⟧⟦U+043E⟧⟦U+0440⟧⟦U+0443⟧.all"),
        ("al\u03c1ha", "al⟦U+03C1⟧ha"),
        ("\uff50ay \U0001d429ay", "⟦U+FF50⟧ay ⟦U+1D429⟧ay"),
        ("payments\uff0etransfer", "payments⟦U+FF0E⟧transfer"),
        ("pay\ufe0fments 1\ufe0f2 \U000e0100", "pay⟦U+FE0F⟧ments 1⟦U+FE0F⟧2 ⟦U+E0100⟧"),
        ("a\u0336pproved p\u0338ay", "a⟦U+0336⟧pproved p⟦U+0338⟧ay"),
        ("1\u20d2000 \u20e0 pay\u0489ments", "1⟦U+20D2⟧000 ⟦U+20E0⟧ pay⟦U+0489⟧ments"),
        ("soft\u00adhyphen", "soft⟦U+00AD⟧hyphen"),
    ],
)
def test_what_looks_like_something_else_is_marked_by_one_rule_everywhere(text, said):
    assert formatting.plain(text) == said
    assert formatting.quoted(text) == f"“{said}”"
    assert re.sub("<[^>]+>", "", formatting.visible(text)) == said
    assert re.sub("<[^>]+>", "", formatting.breakable(text)) == said
    assert formatting.hidden_count(text) == said.count("⟦")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "файл.txt",
            "отчёт_2.pdf",
            "пʼять",
            "Ἀθῆναι και Straße",
            "Tシャツ",
            "APIキー",
            "नमस्ते ไทย",
        ),
        *(
            "한국어漢字",
            "使用API，然后",
            "20 µs, m², 1ª",
            "❤️ ↩️ 👍",
            "Łódź Þór",
            "Это copy, а не оригинал",
        ),
    ],
)
def test_words_of_one_script_are_left_alone_whichever_it_is(text):
    assert formatting.plain(text) == str(formatting.visible(text)) == text


def test_words_in_a_sentence_of_ours_stand_in_one_line_and_cannot_leave_their_quotation():
    target = "R-1” ✓ approved by “finance”\r\n\tAmount: $1\u2028« »"

    said = formatting.quoted(target)

    assert said == '“R-1" ✓ approved by "finance"⏎⇥Amount: $1⏎" "”'
    assert shown("{{ text|quoted }}", text="<b>\n").startswith("“&lt;b&gt;⏎”")
    assert formatting.quoted("a" * 300, 10) == "“aaaaaaaaaa…”"
    assert "\n" not in formatting.breakable("tool\nApproved")


@pytest.mark.parametrize("name", ["Anna Schulz", "cus_42", "Mia O’Neill (cus_42)", "Зоя Орлова"])
def test_a_customers_name_stands_as_it_is(name):
    assert formatting.person(name) == shown("{{ name|person }}", name=name) == name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Anna\n✓ approved by finance", "“Anna⏎✓ approved by finance”"),
        ("Anna. Approved: yes, by finance", "“Anna. Approved: yes, by finance”"),
        ("one two three four five six seven", "“one two three four five six seven”"),
        ("pаyments", "“p⟦U+0430⟧yments”"),
    ],
)
def test_what_could_be_more_than_a_name_stands_in_quotation_marks(name, said):
    assert formatting.person(name) == said


def test_ordinary_writing_stays_as_it_is():
    text = "Grüße, 東京, العربية, 👍\n\tnew line"

    assert formatting.visible(text) == text
    assert formatting.hidden_count(text) == 0


def test_what_is_passed_over_without_a_look_is_no_letter_and_hides_nothing():
    beyond = [chr(code) for code in range(0x80, sys.maxunicode + 1)]
    passed_over = [one for one in beyond if not formatting.UNUSUAL.match(one)]

    assert "€" in passed_over
    for one in passed_over:
        assert not formatting.WORD.match(one)
        assert not formatting.is_unseen(one)
        assert not formatting.WIDE_SIGN.search(f"a{one}b")
    assert formatting.hidden_count("“pаy” – 5\u00a0€…") == 1


def test_words_from_right_to_left_move_nothing_that_stands_beside_their_quotation_marks():
    urgent = "\u0639\u0627\u062c\u0644!"
    for said in (f"von „{urgent}“ auf „3“", f"de «{urgent}» a «3»", f"from “{urgent}” to “3”"):
        first, second = formatting.visible(said).split("<bdi>")[1:]
        assert (first[:6], second[:1]) == (f"{urgent}<", "3")
    hostile = formatting.visible(f"“<b>{urgent}” & „x")
    assert hostile == f"“<bdi>&lt;b&gt;{urgent}</bdi>” &amp; „x"
    assert formatting.visible("from “low” to “high”") == "from “low” to “high”"
    assert shown("{{ text|quoted }}", text=urgent) == f"“<bdi>{urgent}</bdi>”"


def test_no_label_holds_the_markup_around_what_lies():
    """A quotation mark of it would end the attribute."""
    marked = re.compile(r"""="[^"{]*\{\{[^}"]*\|(?:visible|sentence|quoted|whole|breakable)\b""")
    for one in (Path(__file__).parents[2] / "templates").rglob("*.html"):
        assert not marked.search(one.read_text(encoding="utf-8")), one


def test_what_an_agent_wrote_cannot_become_markup():
    assert (
        formatting.visible("<script>alert(1)</script>") == "&lt;script&gt;alert(1)&lt;/script&gt;"
    )
    assert "<script" not in shown('{% diff rows "x" %}', rows=[{"field": "<script>", "was": "<b>"}])
    assert "<img" not in formatting.breakable("a_<img>")


def test_a_short_id_stays_in_one_piece_and_is_copied_as_it_is():
    said = shown(
        "{{ text|sentence }}", text="delete E-5392, <b> 1f0c2d-77-e9 and skyline/rota-2019"
    )
    assert said.count('<span class="nowrap">E-5392</span>') == 1
    assert said.count("nowrap") == 2, "of the long one each part may stand alone"
    assert "&lt;b&gt;" in said
    assert re.sub("<[^>]+>", "", formatting.breakable("B-45552")) == "B-45552"


def test_a_name_that_may_break_shows_what_hides_in_it():
    shown = formatting.breakable("pay\u200b_\u202eall")
    assert "⟦U+200B⟧" in shown
    assert "⟦U+202E⟧" in shown
    assert not {"\u200b", "\u202e"} & set(shown)
    assert shown.endswith("</mark>all")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["a" * 60_000, "a@" + "b." * 30_000, "." * 60_000 + "@"])
def test_a_long_word_that_is_no_address_takes_no_longer_than_reading_it(text):
    """An address was looked for at each of its letters anew: of 60,000 for more than a minute."""
    assert re.sub("<[^>]+>", "", formatting.breakable(text)) == text


def test_a_name_breaks_after_its_signs_and_an_address_before_its_at_alone():
    assert formatting.breakable("a/b_c.d") == "a/<wbr>b_c.<wbr>d"
    assert formatting.breakable("release_every_licence.x") == (
        "release_<wbr>every_<wbr>licence.<wbr>x"
    )
    assert formatting.breakable("mail a.b@x.example") == (
        'mail <span class="own-line">a.b<wbr>@x.example</span>'
    )
    assert formatting.breakable("card “ending 0088”") == (
        'card <span class="nowrap">“ending 0088”</span>'
    )


def test_signs_around_an_address_stay_on_its_line():
    shown = formatting.together(formatting.visible("Eve <a@x.example>, of (b@x.example), not c"))
    assert shown == (
        'Eve <span class="own-line">&lt;a<wbr>@x.example&gt;,</span>'
        ' of <span class="own-line">(b<wbr>@x.example),</span> not c'
    )
    assert formatting.together(formatting.visible("“to a@x.example”, once")) == (
        '“to <span class="own-line">a<wbr>@x.example”,</span> once'
    )


def test_in_a_sentence_an_address_of_the_web_breaks_before_its_slashes_alone():
    shown = formatting.together(formatting.visible("to https://x.example/a/b?c=d, or w/o"))
    assert shown == "to https://x.example<wbr>/a<wbr>/b?c=d, or w/o"


def test_a_long_text_is_cut_and_says_by_how_much():
    html = formatting.visible("a" * (formatting.VISIBLE_CHARACTERS_MAX + 7))

    assert "⟦7 more characters⟧" in html


def test_risk_and_reversibility_have_a_shape_and_a_word():
    assert "▲" in shown('{% risk "high" %}')
    assert "High" in shown('{% risk "high" %}')
    assert "⊘" in shown('{% reversibility "irreversible" %}')
    assert "Undo unknown" in shown('{% reversibility "no such kind" %}')


def test_nothing_that_was_only_queued_is_called_a_success():
    for name in ("ready", "claimed", "applied", "reported", "succeeded"):
        assert "tone-ok" not in shown("{% state name %}", name=name)
    assert "tone-ok" in shown('{% state "verified" %}')


def test_a_difference_can_be_read_without_colour():
    html = shown(
        "{% diff rows %}",
        rows=[
            {"field": "flights", "was": "HAT074", "now": "HAT290", "kind": "changed"},
            {"field": "bags", "now": "1", "kind": "added"},
        ],
    )

    assert "changed" in html
    assert "added" in html
    assert "nothing" in html
    assert '<th scope="col">was</th>' in html


def test_the_side_leaves_out_places_that_are_not_served(monkeypatch):
    monkeypatch.setattr(places, "_is_served", lambda folder: folder in {"queue", "runs"})
    request = RequestFactory().get("/w/air/queue/")
    source = Template("{% load places %}{% places %}")
    desk = SimpleNamespace(slug="air", name="Airline desk")

    html = source.render(Context({"request": request, "workspace": desk, "nav": {"queue": 23}}))

    assert 'href="/w/air/queue/" aria-current="page"' in html
    assert 'class="count urgent" data-count="queue">23<' in html
    assert "/w/air/runs/" in html
    assert "Insights" not in html
