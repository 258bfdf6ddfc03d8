"""Drift on the preview: one answer for all alike, and what is gone is asked for apart."""

import re

import pytest

from ledger.models import Effect
from recovery.planning import plans
from tests.people import person, team
from tests.recovery.cases.cast import stands
from tests.worlds import kept
from workspaces import formatting
from workspaces.templatetags import formatting as tags


@pytest.fixture
@kept
def sue(acme):
    return person("sue", team(acme, "seniors", "view", "view_sensitive", "recover"))


@pytest.fixture
@kept(in_turn=True)
def drifted(begin_run, shop, ticket):
    """A run of three tickets: two were changed since by somebody, the third was deleted."""
    run, rows = begin_run(), [ticket | {"id": f"T-{number}"} for number in (1, 2, 3)]
    for row in rows:
        wrote = row | {"priority": "high"}
        stands(shop, wrote)
        run.does("tickets.update", ("ticket", f"main/{row['id']}", row, wrote))
    run.ends("failed")
    shop.execute("UPDATE tickets SET assignee = 'Ines' WHERE id <> 'T-3'")
    shop.execute("DELETE FROM tickets WHERE id = 'T-3'")
    return run.case()


def test_one_answer_goes_to_all_alike_and_what_is_gone_is_asked_for_apart(drifted, client, sue):
    client.force_login(sue)
    there = f"/w/acme/cases/{drifted.pk}/compensate/"

    page = client.get(there)

    (alike,) = page.context["alike"]
    gone, *changed = page.context["steps"]
    assert alike["legend"].startswith("2 targets changed since the agent wrote them.")
    assert (gone["is_gone"], gone["drift_words"]) == (True, "gone")
    assert [one["value"] for one in gone["choices"]] == ["override", "skip"]
    assert {row["field"] for row in gone["drift"]} >= {"priority", "assignee"}
    assert {row["becomes"] for row in gone["drift"] if row["field"] == "id"} == {"T-3"}
    assert "{&#x27;" not in page.text
    assert "It is gone: somebody deleted it" in page.text
    said = {
        alike["name"]: "rebase", alike["alike"]: alike["ids"],
        gone["choices"][0]["name"]: "skip", "act": "preview",
        "revision": drifted.revision, "digest": page.context["digest"], "reach": "", "why": "x",
    }  # fmt: skip
    answered = client.post(there, said)
    chosen = [
        [one["value"] for one in step["choices"] if one["selected"]]
        for step in answered.context["steps"]
    ]
    assert chosen == [["rebase"], ["rebase"]], "the third is left gone"
    assert answered.context["why_not"] == ""
    assert len(changed) == 2
    why = "Steps 2 and 3 have drifted, and what step 1 undoes is gone: choose what should happen."
    assert page.context["why_not"] == why


def test_of_more_targets_than_are_read_each_other_one_says_so(drifted, client, sue, monkeypatch):
    monkeypatch.setitem(plans.draft.__kwdefaults__, "most", 2)
    client.force_login(sue)

    page = client.get(f"/w/acme/cases/{drifted.pk}/compensate/")

    words = [one["drift_words"] for one in page.context["steps"]]
    assert words == ["gone", "drifted", "was not read"]
    note = "Of so many targets 2 are read beforehand: not this one."
    assert page.context["steps"][2]["by"].endswith(note)
    [left] = [one["value"] for one in page.context["told"] if one["name"] == "Not read now"]
    assert left.startswith("1 target. A step reads its own before it is sent")
    Effect.objects.update(has_after=False)

    page = client.get(f"/w/acme/cases/{drifted.pk}/compensate/")

    assert page.context["steps"][2]["drift_words"].endswith("a later change would be lost")
    assert "Not read now" not in page.text, "nor does its step wait if somebody changed it"


def test_what_is_left_as_it_is_leaves_its_place_among_those_that_are_read(drifted):
    """What was chosen of the next one was answered by *It came or went as a whole*."""
    gone, second = Effect.objects.order_by("-pk")[:2]
    left = {gone.pk: "skip"}
    assert plans.draft(drifted, choices=left, most=1).steps[0].needs_choice

    draft = plans.draft(drifted, choices=left | {second.pk: "rebase"}, most=1)

    assert (draft.steps[0].chosen, draft.cannot) == ("rebase", [])


def test_what_somebody_has_put_back_is_not_shown_as_the_agent_left_it(
    begin_run, shop, ticket, client, sue
):
    run, row = begin_run(), ticket | {"id": "T-1"}
    stands(shop, row)
    run.does("tickets.update", ("ticket", "main/T-1", row, row | {"priority": "high"}))
    run.ends("failed")
    client.force_login(sue)

    (step,) = client.get(f"/w/acme/cases/{run.case().pk}/compensate/").context["steps"]

    assert step["drift_words"] == "already as it should be"
    assert step["diff"] == []
    assert "priority" in {one["field"] for one in step["same"]}


def test_a_long_plan_has_an_outline_and_folds_where_nothing_is_asked(
    begin_run, shop, ticket, client, ada
):
    run = begin_run()
    for number in range(1, 15):
        row = ticket | {"id": f"T-{number}"}
        wrote = row | {"priority": "high"}
        stands(shop, wrote)
        run.does("tickets.update", ("ticket", f"main/T-{number}", row, wrote))
    run.ends("failed")
    shop.execute("UPDATE tickets SET assignee = 'Ines' WHERE id = 'T-7'")
    client.force_login(ada)

    page = client.get(f"/w/acme/cases/{run.case().pk}/compensate/")

    assert page.context["outline"] == [
        {"count": "14", "what": "shop.restore_row ticket", "waits": "1 drifted"}
    ]
    folds = [step["opens_fold"] for step in page.context["steps"] if "opens_fold" in step]
    assert folds == ["Steps 4 to 7", "Steps 9 to 11"], "what is asked for lies open"
    assert page.text.count('<details class="more fold">') == 2


def test_long_texts_are_shown_as_the_lines_that_differ():
    was = "\n".join(f"line {number}" for number in range(40))
    now = was.replace("line 20", "<b>twenty</b>")

    shown = tags.diff([{"field": "body", "was": was, "now": now, "kind": "changed"}])

    assert "… 18 lines the same" in shown
    assert "… 17 lines the same" in shown
    assert "line 20" in shown
    assert "&lt;b&gt;twenty&lt;/b&gt;" in shown
    assert "line 3<" not in shown
    assert "True" not in tags.diff([{"field": "a", "was": {"x": True}, "now": None}])
    assert formatting.digest("abcdef0123456789") == "abcdef012345"


def test_a_text_that_looks_like_the_other_value_is_told_from_it():
    fields = [{"field": "a", "was": 5, "wrote": "5", "now": "6", "becomes": 5}]
    shown = re.sub(' data-label="[^"]+"', "", tags.drift(fields))
    assert "<td>5</td><td>“5”</td><td>6</td><td>5</td>" in shown
    for was, now in ((False, "false"), ([1], "[1]"), (1.5, "1.5")):
        shown = tags.diff([{"field": "a", "was": was, "now": now}])
        assert f'<td class="diff-now">“{now}”</td>' in shown
    alike = tags.diff([{"field": "a", "was": "5", "now": "6"}])
    assert "“" not in alike, "no marks where nothing is mistaken"


def test_what_was_left_as_it_is_stays_so_whatever_is_sent_next(drifted, client, sue):
    client.force_login(sue)
    there = f"/w/acme/cases/{drifted.pk}/compensate/"
    page = client.get(there)
    gone = page.context["steps"][0]
    (alike,) = page.context["alike"]
    said = {
        alike["name"]: "rebase", alike["alike"]: alike["ids"],
        gone["choices"][0]["name"]: "skip",
    }  # fmt: skip

    answered = client.post(there, sent(page.text) | said | {"act": "preview"})
    again = client.post(there, sent(answered.text) | {"act": "preview"})
    asked = client.post(there, sent(answered.text) | {gone["choices"][0]["name"]: ""})
    client.post(there, sent(again.text) | {"act": "commit", "why": "x"})

    assert again.context["digest"] == answered.context["digest"]
    assert asked.context["steps"][0]["choices"] == gone["choices"], "or it is asked again"
    plan = drifted.plans.get()
    assert (plan.digest, plan.steps.count()) == (answered.context["digest"], 2)


def test_who_leaves_all_of_it_does_not_read_that_nothing_can_be_undone(drifted, client, sue):
    client.force_login(sue)
    left = dict.fromkeys((f"effect-{one.pk}" for one in Effect.objects.all()), "skip")

    page = client.post(f"/w/acme/cases/{drifted.pk}/compensate/", left)

    assert page.context["title"] == "Nothing of what stands would be undone"
    assert page.context["lead"] == "3 effects left as you chose."
    assert page.text.count("Ask again") == 3


def sent(text):
    """The fields that a browser sends with the form of a preview."""
    found = re.findall(r"<input([^>]*)>", text)
    inputs = [dict(re.findall(r'([\w-]+)(?:="([^"]*)")?', one)) for one in found]
    return {
        one["name"]: one.get("value", "")
        for one in inputs
        if one.get("name") and (one["type"] != "radio" or "checked" in one)
    }
