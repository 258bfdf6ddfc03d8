"""What a trail says of the request, of who looked at it, and of sums, is so in each language."""

import pytest
from django.utils import translation

from recovery import corrections
from recovery.casework import closing
from recovery.corrections import facts, publishing, recorded_values, sentences, wording
from recovery.models import Case, CaseOutcome, Plan, PlanState, Step
from recovery.views.public import trail_context
from tests.people import logged_in


def state_of(*outcomes):
    return facts._request_state(Case(), [{"outcome": one} for one in outcomes])


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        (["restored", "not_undone"], "not_as_asked"),
        (["compensated", "corrected"], "not_as_asked"),
        (["restored", "left", "not_undone"], "partly"),
        (["restored", "compensated"], "not_done"),
        (["not_undone"], "stands"),
    ],
)
def test_what_cannot_be_taken_back_is_no_part_of_what_was_asked_for(outcomes, state):
    assert state_of(*outcomes) == state


def test_who_got_nothing_of_what_they_asked_for_is_told_to_ask_again(raised):
    [correction] = corrections.draft(raised.case())
    correction.facts["request_state"] = "not_as_asked"

    page = trail_context(correction, {})

    assert page["request"]["words"] == "You did not get this as you had asked for it."
    assert any("ask for it again" in one for one in page["to_do"])


LOOKED_AT = "A member of staff has looked at it."


def test_of_what_nobody_was_asked_about_it_is_not_said_that_people_reviewed_it():
    reviewed = {"approvers": 2, "roles": ["finance", "leads"]}
    undone, sent = {"outcome": "restored"}, {"outcome": "not_undone"}

    all_of_it = sentences.review_words({"reviewed": reviewed, "items": [undone]})
    a_part = sentences.review_words({"reviewed": reviewed, "items": [undone, sent]})

    for of_the_recovery in (reviewed, {"automatic": True, "read_back": True}):
        of_nothing = sentences.review_words({"reviewed": of_the_recovery, "items": []})
        assert of_nothing == LOOKED_AT, "nothing of theirs was done"
    people = "2 people reviewed"
    assert all_of_it == f"{people} this before it was done (finance and leads)."
    assert a_part == f"{people} what we did about it, before it was done (finance and leads)."


@pytest.mark.parametrize("outcome", ["left", "not_undone", "as_before"])
@pytest.mark.parametrize("how", [{"approvers": 1}, {"by_person": True}, {"automatic": True}])
def test_of_whom_nothing_was_put_right_is_not_told_that_something_of_another_was(outcome, how):
    stands = [{"outcome": outcome, "read_back": False}]
    facts_of = {"reviewed": how | {"read_back": True}, "items": stands}

    assert sentences.review_words(facts_of) == LOOKED_AT


def test_it_is_told_as_read_back_only_where_all_that_was_done_for_the_person_was():
    reviewed = {"by_person": True, "read_back": True}
    undone, stands = ({"outcome": "compensated"}, {"outcome": "left", "read_back": False})
    mended = [{"outcome": "repaired", "read_back": False}]
    as_before = [{"outcome": "as_before", "read_back": False}]
    told = [
        sentences.review_words(
            {"reviewed": reviewed, "items": [undone | {"read_back": True}, *more]}
        )
        for more in ([stands], as_before, mended)
    ]

    put_right = "A member of staff looked at it and had it put right."
    was_read = "A computer check read it back afterwards: what we did about it was done."
    assert told == [f"{put_right} {was_read}"] * 2 + [put_right]


@pytest.mark.parametrize(
    ("language", "sums"),
    [
        ("en", ["€25.00", "$1~286.00", "¥7~000", "12~100.00~SEK", "−€3.50"]),
        ("de", ["25,00~€", "1~286,00~$", "7~000~¥", "12~100,00~SEK", "−3,50~€"]),
        ("fr", ["25,00~€", "1~286,00~$", "7~000~¥", "12~100,00~SEK", "−3,50~€"]),
    ],
)
def test_sums_are_written_as_the_reader_writes_them(language, sums):
    told = ["€25.00", "$1~286.00", "¥7~000", "12~100.00~SEK", "−€3.50"]
    space = "\N{NO-BREAK SPACE}"
    with translation.override(language):
        said = [wording.sum_words(one.replace("~", space)) for one in told]

    assert said == [one.replace("~", space) for one in sums]


def changed(kind, name, **told):
    told = {"how": "changed", "tool": "set", "summary": "", "amount": "", **told}
    return {"target": {"type": kind, "id": name}, "act": "left", "outcome": "left", "told": told}


@pytest.mark.parametrize(
    ("language", "figures", "mail", "fields"),
    [
        ("de", "von 0,5 auf 1200,25 geändert", "ging an „Bo <bo@x>“.", "E-Mail-Adresse wurde"),
        ("fr", "de 0,5 à 1200,25", "à « Bo <bo@x> ».", "Compte A-1 a changé : adresse e-mail."),
        ("es", "de 0,5 a 1200,25", "a «Bo <bo@x>».", "Cuenta A-1 cambió: dirección de correo."),
    ],
)
def test_figures_names_and_fields_of_each_gender_are_told_as_the_language_has_them(
    language, figures, mail, fields
):
    balance = changed("account", "A-1", fields=["balance"], values={"was": 0.5, "became": 1200.25})
    who = changed("mail", "bo@x", how="sent", subject="Hi", recipient="“Bo <bo@x>”")
    said = [balance, who, changed("account", "A-1", fields=["email"])]
    with translation.override(language):
        told = [sentences.what(one).replace("\N{NO-BREAK SPACE}", " ") for one in said]

    wanted = (figures, mail, fields)
    assert [words in text for words, text in zip(wanted, told, strict=True)] == [True] * 3, told


def test_what_differs_where_nobody_sees_it_is_not_told_as_from_itself_to_itself():
    blank = recorded_values.from_what_to_what({"note": ""}, {"note": "  "}, ["note"])
    several = recorded_values.from_what_to_what(
        {"note": "", "seat": 1}, {"note": " ", "seat": "1"}, ["note", "seat"]
    )

    assert blank == {}
    assert several["changes"] == [{"field": "note"}, {"field": "seat", "was": 1, "became": "1"}]


def test_a_team_and_a_telephone_number_are_told_in_the_readers_language():
    item = {"undone_by": {"automatic": False, "roles": ["operators"]}}
    with translation.override("de"):
        assert "(„operators“)" in sentences.put_right_by(item)
        with wording.naming({"operators": "Bearbeitung"}):
            assert "(Bearbeitung)" in sentences.put_right_by(item)
        assert sentences.thing("phone", "+49 30 1") == "Telefonnummer „+49 30 1“"


def test_drafting_anew_says_whether_anything_was_drafted(raised, ada):
    case = raised.case()
    page = logged_in(ada)
    there = f"/w/acme/cases/{case.pk}/corrections/"
    before = page.get(f"/w/acme/cases/{case.pk}/?tab=correction").text
    assert "once the case is closed as recovered, or now." in before

    first = page.post(there, follow=True).text
    [drafted] = case.corrections.all()
    corrections.publish(drafted, by=ada, seen=drafted.revision, ways=[publishing.LINK])
    again = page.post(there, follow=True).text

    assert "1 correction drafted" in first
    assert "Nothing to draft: what is there says what the ledger holds." in again
    assert "drafted anew" not in again


@pytest.mark.parametrize(
    ("language", "one", "many", "more"),
    [
        ("en", "1 of 2 changes could not be undone and was", "2 of 3 changes could not", "1 more"),
        ("de", "1 von 2 Änderungen ließ sich", "2 von 3 Änderungen ließen sich", "1 weitere"),
        ("fr", "1 changement sur 2 n’a pas pu", "2 changements sur 3 n’ont pas pu", "1 autre"),
        ("es", "1 de 2 cambios no se pudo", "2 de 3 cambios no se pudieron", "1 más"),
    ],
)
def test_one_and_several_that_could_not_be_undone_are_told_as_such(language, one, many, more):
    undone, sent = {"outcome": "restored"}, {"outcome": "corrected"}

    with translation.override(language):
        [first] = sentences._became([undone, sent])
        [second] = sentences._became([undone, sent, sent])
        rest = wording.more_words(1)

    assert (first.startswith(one), second.startswith(many), rest) == (True, True, more)
    assert language != "en" or "and were corrected" in second


def test_what_was_put_right_by_hand_is_not_told_to_stand_as_the_assistant_left_it(raised, ada):
    case = raised.case()
    ended = {"outcome": "already_handled", "reason": "Nora did", "seen": case.revision}
    closing.close(case, by=ada, **ended)
    [drafted] = corrections.draft(case)

    told = trail_context(drafted, {})

    assert [(one["did"], one["word"]) for one in told["changed"]] == [
        ("Our staff say that it was put right by hand.", "Put right by hand")
    ]
    assert told["now"] == ["Ticket T-182 was put right by hand."]
    assert told["to_do"] == ["You need not do anything."]
    assert told["request"]["words"] == ""


def test_nobody_is_told_what_stands_while_a_step_may_have_undone_it(lost, ada):
    plan = Plan.objects.get()
    [drafted] = corrections.draft(plan.case)
    seen = {"by": ada, "seen": drafted.revision}

    with pytest.raises(publishing.CannotPublish, match="has not ended"):
        corrections.publish(drafted, **seen)
    Plan.objects.update(was=PlanState.RUNNING, state=PlanState.STOPPED)
    for was in ("unknown", "applied"):  # the latter does not read as it should, or was done twice
        Step.objects.update(was=was, state="needs_human")
        with pytest.raises(publishing.CannotPublish, match="settle it first"):
            corrections.publish(drafted, **seen)


def test_nobody_is_told_of_a_mistake_that_was_none(raised, ada):
    case = raised.case()
    closing.close(case, by=ada, outcome="expected", reason="As asked", seen=case.revision)
    [drafted] = corrections.draft(case)

    with pytest.raises(publishing.CannotPublish, match="closed as expected"):
        corrections.publish(drafted, by=ada, seen=drafted.revision)


def test_what_was_restored_is_told_alike_once_nothing_more_was_done_by_hand():
    case = Case(outcome=CaseOutcome.ALREADY_HANDLED)
    restored, by_hand = ({"outcome": "restored"}, {"outcome": "left", "act": "by_hand"})

    states = [facts._request_state(case, items) for items in ([restored], [restored, by_hand])]

    assert states == ["not_done", ""]
