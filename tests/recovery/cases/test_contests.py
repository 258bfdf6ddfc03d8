"""Eve reads what was done, in her language, and contests it: a clock, a receipt, an answer."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone, translation

from ledger.models import Event
from recovery import corrections
from recovery.casework import closing
from recovery.corrections import contesting, drafting, facts, publishing, wording
from recovery.corrections.contesting import DecidedBefore, LinkGone
from recovery.models import CaseState, Contest, Correction
from tests.people import person
from tests.recovery.cases.cast import undone
from tests.worlds import kept
from workspaces.free_text import InvalidInput
from workspaces.moves import CannotMove

TICKET = "priority of ticket T-182"


@pytest.fixture
@kept(in_turn=True)
def published(raised, ada):
    """A correction of a ticket that Ada had put back, and its path; she published it, too."""
    case = raised.case()
    undone(case, ada)
    case.refresh_from_db()
    (drafted,) = corrections.draft(case)
    found = corrections.publish(drafted, by=ada, seen=drafted.revision)
    return found, corrections.link_of(found).removeprefix("http://localhost")


def contested(client, path, ground="not_restored"):
    said = {"ground": ground, "text": "It still says high"}
    answer = client.post(f"{path}report/", said)
    assert answer.status_code == 302, answer.text
    return answer["Location"]


def test_she_gets_a_receipt_with_a_clock_and_her_case_is_open_again(published, client):
    correction, path = published

    receipt = client.get(contested(client, path))

    kept = Contest.objects.get()
    assert receipt.status_code == 200
    for words in (kept.receipt, correction.reference, "It still says high"):
        assert words in receipt.text
    assert kept.due_at - kept.at == timedelta(days=14)
    correction.case.refresh_from_db()
    assert correction.case.state == CaseState.OPEN
    told = Event.objects.get(type="correction.contested").data
    assert (told["receipt"], told["ground"]) == (kept.receipt, "not_restored")
    trail = client.get(path).text
    assert kept.receipt in trail, "the trail says that it is being looked at"
    assert '<span class="nowrap">T-182</span>' in trail, "an id is read in one piece"
    assert client.get(f"{path}contested/CT-0000-0000/").status_code == 404


def test_whoever_decided_does_not_answer_and_somebody_else_does_once(
    published, client, ada, nils, acme
):
    correction, path = published
    receipt = contested(client, path)
    contest = Contest.objects.get()
    there = f"/w/acme/corrections/{correction.pk}/"

    with pytest.raises(DecidedBefore, match="You published it"):
        contesting.answer(contest, by=ada, upheld=False, text="No")
    client.force_login(ada)
    case = client.get(f"/w/acme/cases/{correction.case_id}/").text
    assert f'<a href="{there}">See {contest.receipt}</a>' in case
    assert not re.findall(r'main-act"\s+href', case), "it is not hers to lead to an end"
    to_answer = "/w/acme/corrections/?view=answer"
    listed = client.get(to_answer).text
    assert correction.reference in listed
    assert "contested, answer due in 13 d" in listed
    who = f"somebody who took no part in it answers, such as {nils}."
    assert (who in case, who in client.get(there).text) == (True, True)
    client.force_login(nils)
    said = {"upheld": "yes", "answer": "You are right, we put it back today."}
    words_alone = {"answer": "Half"}
    case = client.get(f"/w/acme/cases/{correction.case_id}/").text
    assert re.findall(r'main-act"\s+href="([^"]+)"', case) == [there], "one act leads"
    for half, stays in (({"upheld": "no"}, 'value="no" required checked'), (words_alone, "Half</")):
        refused = client.post(f"{there}contests/{contest.pk}/", half)
        assert (refused.status_code, stays in refused.text) == (422, True)
    assert client.post(f"{there}contests/{contest.pk}/", said).status_code == 302
    with pytest.raises(CannotMove, match="meanwhile"):
        contesting.answer(contest, by=nils, upheld=False, text="No")
    for typed in (said | {"answer": "Not so, I looked"}, {"answer": "Not so, I looked"}):
        late = client.post(f"{there}contests/{contest.pk}/", typed)
        assert (late.status_code, "Not so, I looked" in late.text) == (409, True), "it is kept"

    assert correction.reference not in client.get(to_answer).text
    assert "answer due" not in client.get("/w/acme/corrections/").text
    page = client.get(receipt)
    assert all(one in page.text for one in ("You were right", "we put it back today"))
    assert Event.objects.get(type="correction.answered").data["upheld"] is True
    correction.case.refresh_from_db()
    assert correction.case.suggestion_reason.endswith("was right: put that right first.")
    assert ", and was right:" in client.get(f"/w/acme/cases/{correction.case_id}/").text


def test_who_had_closed_the_case_does_not_answer_though_contesting_opened_it(
    raised, client, ada, nils
):
    case = raised.case()
    ended = {"outcome": "already_handled", "reason": "Put right by hand", "seen": case.revision}
    closing.close(case, by=nils, **ended)
    (drafted,) = corrections.draft(case)
    letter = corrections.publish(drafted, by=ada, seen=drafted.revision)
    contested(client, corrections.link_of(letter).removeprefix("http://localhost"))

    contest = Contest.objects.get()

    assert (contest.correction.case.state, contest.correction.case.closed_by) == ("open", None)
    with pytest.raises(DecidedBefore, match="You closed its case"):
        contesting.answer(contest, by=nils, upheld=False, text="No")


def test_the_link_opens_until_the_answer_could_be_read(published, client, nils):
    correction, path = published
    on_day_25 = timezone.now() + timedelta(days=5)
    Correction.objects.filter(pk=correction.pk).update(expires_at=on_day_25)

    contested(client, path)

    contest = Contest.objects.get()
    correction.refresh_from_db()
    assert correction.expires_at == contest.due_at + timedelta(days=30)
    Correction.objects.filter(pk=correction.pk).update(expires_at=on_day_25)
    contesting.answer(contest, by=nils, upheld=False, text="It reads normal")
    correction.refresh_from_db()
    contest.refresh_from_db()
    assert correction.expires_at >= contest.answered_at + timedelta(days=30)
    last = timezone.now() + timedelta(days=170)
    Correction.objects.filter(pk=correction.pk).update(expires_at=last)
    contested(client, path)
    correction.refresh_from_db()
    assert correction.expires_at == last, "no link is cut short"


@pytest.mark.parametrize(
    "gone", [{"state": "revoked"}, {"expires_at": timezone.now() - timedelta(days=1)}]
)
def test_whoever_answers_is_told_that_the_link_opens_nothing_any_more(
    published, client, nils, gone
):
    correction, path = published
    contested(client, path)
    there = f"/w/acme/corrections/{correction.pk}/"
    client.force_login(nils)
    reads, tell = "The person reads it on the page of their receipt", "tell the person yourself"
    living = client.get(there).text
    assert (reads in living, tell in living) == (True, False)

    Correction.objects.filter(pk=correction.pk).update(**gone)

    dead = client.get(there).text
    assert (reads in dead, tell in dead) == (False, True)
    contesting.answer(Contest.objects.get(), by=nils, upheld=True, text="By telephone")
    assert client.get(path).status_code == 404, "and an answer does not open it again"


PROMISED = {
    "en": ("Answered at the latest by", "It was to be answered by"),
    "de": ("Antwort spätestens am", "Die Antwort war fällig bis"),
    "fr": ("Réponse au plus tard le", "La réponse était attendue au plus tard le"),
    "es": ("Respuesta a más tardar el", "La respuesta debía llegar a más tardar el"),
}


def test_no_answer_is_promised_by_a_date_that_is_over(published, client):
    _, path = published
    receipt = contested(client, path).partition("?")[0]

    def told(language, due, late):
        pages = [client.get(f"{one}?lang={language}").text for one in (path, receipt)]
        return [(due in page, late in page) for page in pages]

    assert [told(one, *PROMISED[one]) for one in PROMISED] == [[(True, False)] * 2] * 4
    Contest.objects.update(due_at=timezone.now() - timedelta(minutes=1))
    assert [told(one, *PROMISED[one]) for one in PROMISED] == [[(False, True)] * 2] * 4


def test_where_it_is_put_right_is_said_as_the_case_stands(published, client, nils, operators):
    correction, path = published
    contested(client, path)
    there = f"/w/acme/corrections/{correction.pk}/"
    client.force_login(nils)
    assert "Its case is open again: put it right there." in client.get(there).text
    case = correction.case
    case.refresh_from_db()
    last = person("otto", operators)
    closing.close(case, outcome="expected", reason="Too soon", by=last, seen=case.revision)

    page = client.get(there).text

    assert "Its case was closed since: reopen it, and put it right there." in page
    contest, its_case = Contest.objects.get(), f"/w/acme/cases/{case.pk}/"
    closed = client.get(its_case).text
    for words in ("Closed as", "nobody has answered", "It still says high"):
        assert words in closed
    assert f'<a class="button main-act" href="{there}">Answer {contest.receipt}</a>' in closed
    contesting.answer(contest, by=nils, upheld=False, text="It reads normal")
    assert contest.receipt not in client.get(its_case).text
    assert "tell them yourself" in client.get(there).text, "it went by a link alone"


def test_a_second_click_says_nothing_twice_and_needs_no_cookie(published, nils):
    correction, path = published
    eve = Client(enforce_csrf_checks=True)  # of whose browser no cookie is kept
    receipts = {contested(eve, path), contested(eve, path)}

    kept = Contest.objects.get()
    told = Event.objects.filter(type__in=["correction.contested", "case.reported"])
    assert (len(receipts), told.filter(type="correction.contested").count()) == (1, 1)
    assert correction.case.reports.count() == 1
    contesting.answer(kept, by=nils, upheld=False, text="It reads normal")
    assert contested(eve, path) not in receipts, "after its answer it is said anew"


def test_a_receipt_that_is_none_is_answered_in_her_language_and_leads_to_no_desk(published, client):
    gone = client.get(f"{published[1]}contested/CT-0000-0000/?lang=de")

    assert gone.status_code == 404
    assert "Unter dieser Adresse ist keine Berichtigung" in gone.text
    assert gone["X-Robots-Tag"] == "noindex, nofollow"


def test_the_same_words_said_twice_have_two_answers(published, client, nils):
    correction, path = published
    contested(client, path)
    contested(client, path, "other")
    wanted = {one.receipt for one in Contest.objects.all()}
    client.force_login(nils)
    here = f"/w/acme/cases/{correction.case_id}/"

    def offered():
        notices = client.get(here).context["notices"]
        links = [one.get("links", ()) for one in notices]
        return [{link["label"].split()[-1] for link in found} & wanted for found in links]

    assert len(wanted) == 2
    assert set.union(*offered()) == wanted
    case = correction.case
    case.refresh_from_db()
    closing.close(case, outcome="expected", reason="Too soon", by=nils, seen=case.revision)
    assert [len(one) for one in offered() if one] == [1, 1]


def test_what_was_contested_in_vain_is_no_news(published, client, nils):
    """Her letter says how it was and is: nothing has changed since then."""
    correction, path = published
    client.get(path)
    contested(client, path)
    contesting.answer(Contest.objects.get(), by=nils, upheld=False, text="It reads normal")
    case = correction.case
    case.refresh_from_db()
    closing.close(case, outcome="corrected", reason="Looked at", by=nils, seen=case.revision)

    assert publishing.draft_due() == 1

    [draft] = Correction.objects.exclude(pk=correction.pk)
    assert draft.facts["why"] != correction.facts["why"]
    assert "Something has changed since then" not in client.get(path).text
    corrections.publish(draft, by=nils, seen=draft.revision)
    assert "Read the newer correction" in client.get(path).text


def test_she_reads_in_her_language_and_the_facts_stay_what_was_sealed(published, client):
    correction, path = published

    german = client.get(path, headers={"Accept-Language": "de-AT, en;q=0.5"}).text
    chosen = client.get(f"{path}?lang=fr", headers={"Accept-Language": "de"}).text
    other = client.get(path, headers={"Accept-Language": "fi"}).text

    assert '<html lang="de">' in german
    assert "Priorität von „normal“ auf „high“ geändert" in german
    assert "Zurückgesetzt auf „normal“." in german
    assert "Eine Prüfung ergab, dass das nicht der Auftrag war." in german
    assert '<html lang="fr">' in chosen
    assert "priorité de « normal » à « high »" in chosen
    assert "The priority of ticket T-182 was changed from “normal” to “high”." in other
    assert correction.facts["items"][0]["did"] == "It was put back to “normal”."
    form = client.get(f"{path}report/?lang=es").text
    assert "Díganoslo" not in form
    assert "No pedí esto" in form


RIGHTS = {
    "en": (
        "Your rights",
        (
            "You may contest this, whatever your reason. A person who took no part in it looks at"
            " it anew and answers you with reasons. The law where you live may give you further"
            " rights."
        ),
        "You have an answer within 5 days.",
        "You get a receipt with a number as soon as you send this.",
    ),
    "de": (
        "Ihre Rechte",
        (
            "Sie dürfen widersprechen, aus welchem Grund auch immer. Ein Mensch, der daran nicht"
            " beteiligt war, sieht es sich neu an und antwortet Ihnen mit Gründen. Das Recht an"
            " Ihrem Ort kann Ihnen weitere Rechte geben."
        ),
        "Sie haben binnen 5 Tagen eine Antwort.",
        "Sobald Sie es absenden, bekommen Sie eine Quittung mit einer Nummer.",
    ),
    "fr": (
        "Vos droits",
        (
            "Vous pouvez contester ceci, quelle que soit votre raison. Une personne qui n’y a pas"
            " pris part l’examine à nouveau et vous répond en donnant ses raisons. La loi de votre"
            " pays peut vous donner d’autres droits."
        ),
        "Vous avez une réponse sous 5 jours.",
        "Vous recevez un reçu numéroté dès l’envoi.",
    ),
    "es": (
        "Sus derechos",
        (
            "Puede impugnar esto por la razón que sea. Una persona que no participó lo examina de"
            " nuevo y le responde con razones. La ley de su país puede darle más derechos."
        ),
        "Tendrá respuesta en 5 días.",
        "Recibirá un recibo con número en cuanto lo envíe.",
    ),
}


@pytest.mark.parametrize("language", RIGHTS)
def test_who_contests_is_told_their_rights_in_their_language(
    published, client, language, acme, alma
):
    _, path = published
    title, rights, *promised = RIGHTS[language]
    wording.word(acme, by=alma, language="en", sentences={}, internal=[], valid_days=30,
                 answer_days=5)  # fmt: skip

    form = client.get(f"{path}report/?lang={language}").text
    trail = client.get(f"{path}?lang={language}").text

    assert f">{title}</h2>" in form
    for words in (rights, *promised):
        assert words in form
    for words in (rights, promised[0]):
        assert words in trail


@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_every_sentence_of_the_trail_is_in_every_language(language):
    from recovery.corrections.sentences import WORDS
    from recovery.corrections.wording import KINDS_OF_THINGS
    from recovery.triage.detectors import KINDS

    said = [*WORDS.values(), *wording.SENTENCES.values(), *(one.person for one in KINDS.values())]
    with translation.override(language):
        same = [text for text in said if translation.gettext(text) == text]
        kinds = [word for word in KINDS_OF_THINGS.values() if not translation.gettext(word)]

    assert (same, kinds) == ([], [])


def test_the_time_stands_in_the_zone_of_the_workspace_and_is_named(published, client, acme):
    correction, path = published
    type(acme).objects.filter(pk=acme.pk).update(timezone="Europe/Vienna")
    moment = timezone.now().replace(month=1, day=2, hour=9, minute=30)
    Correction.objects.filter(pk=correction.pk).update(published_at=moment)

    page = client.get(f"{path}?lang=de").text

    assert f"data-zoned>2. Januar {moment.year} 10:30 CET</time>" in page


def test_administrators_have_words_of_their_own_in_each_language(published, client, alma, acme):
    _, path = published
    client.force_login(alma)
    page = client.get("/w/acme/corrections/settings/?language=de")
    assert "Wir bitten um Entschuldigung." in page.text
    said = {
        "language": "de", "closing": "Ihre Acme, mit Bedauern.", "internal": "session\n counter*",
        "valid_days": "30", "answer_days": "5",
    }  # fmt: skip

    assert client.post("/w/acme/corrections/settings/", said).status_code == 302

    assert "Ihre Acme, mit Bedauern." in client.get(f"{path}?lang=de").text
    assert "We are sorry for the trouble." in client.get(f"{path}?lang=en").text
    settings = wording.settings_of(acme)
    assert (settings.internal, settings.valid_days) == (["session", "counter*"], 30)
    refused = client.post("/w/acme/corrections/settings/", said | {"answer_days": "0"})
    assert refused.status_code == 422
    with pytest.raises(InvalidInput):
        wording.word(acme, by=alma, language="xx", sentences={}, internal=[], valid_days=30,
                     answer_days=5)  # fmt: skip


def test_bookkeeping_is_no_news_to_anybody(begin_run, acme, alma, ticket):
    wording.word(acme, by=alma, language="en", sentences={}, internal=["counter*"], valid_days=30,
                 answer_days=5)  # fmt: skip
    run = begin_run()
    run.does("tickets.update", ("counters", "views", {"n": 1}, {"n": 2}),
             ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))  # fmt: skip
    run.ends("failed")

    (correction,) = corrections.draft(run.case())

    assert [one["target"]["type"] for one in correction.facts["items"]] == ["ticket"]


def test_there_and_back_is_told_once(begin_run, ticket):
    run = begin_run()
    high = ticket | {"priority": "high"}
    run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    run.does("tickets.update", ("ticket", "main/T-182", high, ticket))
    other = ticket | {"id": "T-204"}
    urgent = other | {"priority": "urgent"}
    run.does("tickets.update", ("ticket", "main/T-204", other, other | {"priority": "high"}))
    run.does("tickets.update", ("ticket", "main/T-204", other | {"priority": "high"}, urgent))
    run.ends("failed")

    (correction,) = corrections.draft(run.case())

    assert [(one["what"], one["word"]) for one in correction.facts["items"]] == [
        (
            f"The {TICKET} was changed from “normal” to “high” and back to “normal”.",
            "As it was before",
        ),
        (
            "The priority of ticket T-204 was changed from “normal” to “urgent”.",
            "Left as it is",
        ),
    ]


def test_facts_of_the_first_version_are_still_told_as_they_stand(published, client):
    correction, path = published
    old = dict(correction.facts)
    (item,) = old["items"]
    for name in ("told", "act", "agent", "undone_by"):
        item.pop(name)
    for name in ("request", "request_state"):
        old.pop(name)
    Correction.objects.filter(pk=correction.pk).update(facts=old)

    page = client.get(f"{path}?lang=de").text

    assert "The priority of ticket T-182 was changed from “normal” to “high”." in page
    assert "It was put back to “normal”." in page


def test_a_link_lives_as_long_as_was_chosen_on_the_page(raised, ada, client):
    client.force_login(ada)
    case = raised.case()
    assert client.post(f"/w/acme/cases/{case.pk}/corrections/").status_code == 302
    drafted = Correction.objects.get()
    page = client.get(f"/w/acme/cases/{case.pk}/?tab=correction").text
    assert drafted.reference in page
    said = {"revision": drafted.revision, "title": drafted.title, "lead": drafted.lead,
            "valid_days": "30"}  # fmt: skip

    there = f"/w/acme/corrections/{drafted.pk}/publish/"
    refused = client.post(there, said | {"valid_days": "31"})
    assert (refused.status_code, "The words are saved; it was not published." in refused.text) == (
        422, True
    )  # fmt: skip
    drafted.refresh_from_db()
    answer = client.post(there, said | {"revision": drafted.revision})

    assert answer.status_code == 302, answer.text
    assert "Nobody is sent it: hand the link on." in client.get(answer["location"]).text
    drafted.refresh_from_db()
    assert drafted.expires_at - drafted.published_at == timedelta(days=30)
    assert facts.VERSION == 2
    assert drafting.words_of(drafted.facts)["title"] == drafted.title


def test_what_is_sent_as_its_letter_is_withdrawn_or_erased_is_not_taken(published, ada):
    """The letter was there as it was opened, and is not any more as it is locked."""
    correction, _ = published
    opened = Correction.objects.select_related("case__run", "workspace").get(pk=correction.pk)
    corrections.revoke(correction, by=ada, seen=correction.revision, reason="Wrong")
    with pytest.raises(LinkGone):
        contesting.contest(opened, ground="other", text="Not so")

    Correction.objects.update(state="published", revoked_at=None, token_digest="")  # as erased
    with pytest.raises(LinkGone):
        contesting.contest(opened, ground="other", text="Not so")

    assert not Contest.objects.exists()
    opened.case.refresh_from_db()
    assert opened.case.state == CaseState.CLOSED
