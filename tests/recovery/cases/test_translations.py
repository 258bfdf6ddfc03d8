"""Every word of an affected person's pages is in all three catalogues, and none stands outside."""

import ast
import gettext
import re
from pathlib import Path
from typing import Any

import pytest
from django.template.base import Lexer, TokenType
from django.utils.translation import override
from django.utils.translation.template import templatize

from recovery.corrections import sentences, wording

ROOT = Path(__file__).parents[3]
VIEWS = ("recovery/views/public.py", "approvals/views/asked.py")
TRANSLATED = {"_", "gettext", "gettext_noop", "gettext_lazy", "ngettext", "ngettext_lazy"}
LANGUAGES = sorted(set(wording.LANGUAGES) - {"en"})
NAMED = re.compile(r"""\{%\s*(?:extends|include)\s+["']([^"']+)["']""")
OF_OURS = re.compile(r"<(code|pre|script|style)\b.*?</\1>", re.DOTALL)
READ_ALOUD = re.compile(r"""\b(?:aria-label|alt|title|placeholder)=["']([^"']*)["']""")
SAME_EVERYWHERE = {"Amends"}


def templates():
    """Those that the public views show, and what these extend and include."""
    said = [node for view in VIEWS for node in ast.walk(ast.parse((ROOT / view).read_text()))]
    names = {one.value for one in said if isinstance(one, ast.Constant)}
    wanted = {one for one in names if isinstance(one, str) and one.endswith(".html")}
    found: dict[str, str] = {}
    while wanted:
        name = wanted.pop()
        found[name] = (ROOT / "templates" / name).read_text()
        wanted |= set(NAMED.findall(found[name])) - set(found)
    return found


def marked(source):
    """The words that a module has for translation; of several forms the first names them."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute):
            name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
            if name in TRANSLATED and isinstance(call.args[0], ast.Constant):
                yield call.args[0].value


def marked_in_template(source):
    for call in re.finditer(r"\bn?gettext\(u?(.*?)\) ", templatize(source), re.DOTALL):
        forms = re.findall(r"""u?((?:'(?:[^'\\]|\\.)*')|(?:"(?:[^"\\]|\\.)*"))""", call[0])
        yield ast.literal_eval(forms[0])


def words():
    """Every one, with where it stands."""
    modules = [path for floor in ("recovery", "approvals") for path in (ROOT / floor).rglob("*.py")]
    for path in modules:
        if "migrations" in path.parts:
            continue
        source = path.read_text()
        if "django.utils.translation" in source:
            yield from ((word, path.name) for word in marked(source))
    for name, source in templates().items():
        yield from ((word, name) for word in marked_in_template(source))


def catalogue(language):
    path = ROOT / f"recovery/locale/{language}/LC_MESSAGES/django.mo"
    with path.open("rb") as file:
        read = gettext.GNUTranslations(file)
    known: dict[Any, str] = vars(read)["_catalog"]
    return {key if isinstance(key, str) else key[0] for key, text in known.items() if text}


def test_every_word_of_an_affected_persons_pages_is_in_all_catalogues():
    found = dict(words())
    of_templates = {"Tell us", "Yes, please", "You have an answer within %(days)s day."}
    assert of_templates | {"Put back", "address", "You need not do anything."} <= set(found)

    missing = {
        language: sorted(f"{where}: {word}" for word, where in found.items()
                         if word.strip() and word not in known)
        for language in LANGUAGES
        for known in [catalogue(language)]
    }  # fmt: skip

    assert missing == {language: [] for language in LANGUAGES}


def test_no_word_of_these_pages_stands_outside_the_catalogues():
    loose = {}
    for name, source in templates().items():
        tokens = Lexer(re.sub(r"\{% comment %\}.*?\{% endcomment %\}", "", source, flags=re.DOTALL))
        text, skipped = "", False
        for token in tokens.tokenize():
            if token.token_type == TokenType.BLOCK:
                first = token.contents.split()[0]
                skipped = first == "blocktranslate" or (skipped and first != "endblocktranslate")
            elif token.token_type == TokenType.TEXT and not skipped:
                text += token.contents
        spoken = READ_ALOUD.findall(text)
        shown = re.sub(r"<[^>]*>", " ", OF_OURS.sub(" ", text))
        bare = set(re.findall(r"[^\W\d_]{2,}", " ".join([shown, *spoken])))
        if bare - SAME_EVERYWHERE:
            loose[name] = sorted(bare - SAME_EVERYWHERE)
    assert loose == {}


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "The seat class of ticket T-182 was changed from “low” to “high”."),
        ("de", "Ticket T-182: Sitzklasse von „low“ auf „high“ geändert."),
        ("fr", "Ticket T-182 a changé : «~seat class~» de «~low~» à «~high~»."),
        ("es", "Ticket T-182 cambió: «seat class» de «low» a «high»."),
    ],
)
def test_fields_and_quotation_marks_are_the_readers(language, words):
    told = {"how": "changed", "fields": ["seatClass"], "values": {"was": "low", "became": "high"}}
    item = {"told": told, "target": {"type": "ticket", "id": "T-182"}}
    own = {"seatClass": "Sitzklasse"} if language == "de" else {}

    with override(language), wording.naming(own):
        said = sentences.what(item)
        usual = wording.field_words("due_date")

    assert said == words.replace("~", "\N{NO-BREAK SPACE}")
    assert usual == {"en": "due date", "de": "Fälligkeit", "fr": "échéance",
                     "es": "vencimiento"}[language]  # fmt: skip
    assert wording.field_words("seatClass") == "seat class", "it holds within only"


def test_words_cannot_leave_the_quotation_marks_of_any_language():
    for language in LANGUAGES:
        with override(language):
            inside = wording.quoted("a « b » „c“ “d” «e»")[1:-1]
        assert not set("«»„“”") & set(inside)
