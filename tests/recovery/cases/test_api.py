"""The whole way through the HTTP API, by a person's token."""

import ast
import inspect
import json
import re
import shlex

import pytest

from config.local.places import ROOT
from recovery.casework import bulk, cases
from recovery.corrections import publishing
from recovery.models import BulkJob, Case, CaseOutcome, Plan
from recovery.planning import drafting
from tests.people import person, team
from tests.recovery.engine import by_hand
from workspaces import keys
from workspaces.models import Agent


class Caller:
    def __init__(self, client, workspace, person):
        self.client = client
        _, token = keys.create_token(workspace, by=person, name="test")
        self.headers = {"Authorization": f"Bearer {token}"}

    def get(self, path, **query):
        answer = self.client.get(f"/api/v1{path}", query, headers=self.headers)
        return answer.status_code, answer.json()

    def post(self, path, **body):
        answer = self.client.post(
            f"/api/v1{path}", json.dumps(body), "application/json", headers=self.headers
        )
        return answer.status_code, answer.json()


@pytest.fixture
def api(client, acme, ada):
    return Caller(client, acme, ada)


def test_a_program_reaches_back_to_a_checkpoint_that_the_run_names_and_goes_on_from_there(
    begin_run, shop, ticket, api
):
    run = begin_run()
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', assignee = 'Finn', version = 3")
    run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    run.n += 1
    run.send("run.checkpoint", name="raised", completed=["act_1"])
    run.does("tickets.assign", ("ticket", "main/T-182", high, high | {"assignee": "Finn"}))
    run.ends("failed")
    case = run.case()

    _, told = api.get(f"/runs/{case.run.run}")
    point = next(one["id"] for one in told["checkpoints"] if one["name"] == "raised")
    path = f"/cases/{case.pk}"
    _, seen = api.get(f"{path}/preview", checkpoint=point)
    shown = {name: seen[name] for name in ("digest", "revision")}
    status, plan = api.post(f"{path}/compensate", **shown, reach=point, reason="Not Finn")
    assert status == 200, plan
    by_hand.advance(plan["id"])

    assert shop.execute("SELECT priority, assignee FROM tickets").fetchone() == ("high", "Nora")
    _, seen = api.get(f"{path}/preview", verb="resume", checkpoint=point)
    assert [(one["tool"], one["label"]) for one in seen["steps"]] == [
        ("tickets.assign", "repeat_new_key")
    ]
    shown = {name: seen[name] for name in ("digest", "revision")}
    status, directed = api.post(f"{path}/resume", **shown, checkpoint=point, reason="To Nora")
    assert status == 200, directed
    assert run.row.directives.get().checkpoint_id == point


def test_from_the_preview_to_the_published_correction(raised, shop, api):
    case = raised.case()

    _, found = api.get("/cases", q="is:open tool:tickets.update")
    assert [one["id"] for one in found["cases"]] == [case.pk]
    _, preview = api.get(f"/cases/{case.pk}/preview")
    assert preview["why_not"] == ""
    status, plan = api.post(
        f"/cases/{case.pk}/compensate",
        digest=preview["digest"],
        revision=preview["revision"],
        reason="Wrong priority",
    )
    assert status == 200, plan
    seen = {name: preview[name] for name in ("digest", "revision")}
    path = f"/cases/{case.pk}/compensate"
    _, again = api.post(path, **seen, reason="Wrong priority")
    assert again["id"] == plan["id"], "once more, where the answer did not come"
    assert api.post(path, **seen, reason="Another")[0] == 409
    by_hand.advance(plan["id"])

    _, closed = api.get(f"/cases/{case.pk}")
    assert (closed["state"], closed["outcome"]) == ("closed", "restored")
    assert {closed[name] for name in ("suggestion", "suggestion_reason", "needs_approval")} == {""}
    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)
    publishing.draft_due()
    _, closed = api.get(f"/cases/{case.pk}")
    (drafted,) = closed["corrections"]
    status, published = api.post(
        f"/corrections/{drafted['id']}/publish", revision=drafted["revision"]
    )
    assert status == 200, published
    assert published["state"] == "published"
    assert published["link"].startswith("http://localhost/c/")


def printed():
    """The requests that the guide prints, in order: path and query, and the body of a POST."""
    guide = (ROOT / "docs" / "recovery-api.md").read_text()
    [script, *_] = re.findall(r"```sh\n(.*?)```", guide, re.DOTALL)
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "curl":
            [path] = [word for word in words if word.startswith("$desk/")]
            body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
            yield path.removeprefix("$desk"), body


def test_the_lines_of_the_guide_lead_from_the_queue_to_a_published_correction(raised, shop, api):
    case = raised.case()
    found, previewed, compensated, read, published = printed()

    def get(asked):
        path, _, query = asked[0].replace("/17", f"/{case.pk}").partition("?")
        status, answer = api.get(path, **dict(one.split("=") for one in query.split("&") if one))
        assert status == 200, answer
        return answer

    get((found[0].replace("+", " "), None))
    preview = get(previewed)
    seen = {name: preview[name] for name in ("digest", "revision")}
    status, plan = api.post(compensated[0].replace("/17", f"/{case.pk}"), **(compensated[1] | seen))
    assert status == 200, plan
    by_hand.advance(plan["id"])
    publishing.draft_due()
    [drafted] = get(read)["corrections"]
    status, said = api.post(
        published[0].replace("/5", f"/{drafted['id']}"),
        **(published[1] | {"revision": drafted["revision"]}),
    )
    assert status == 200, said


def test_a_stale_digest_or_revision_is_a_conflict(raised, api):
    case = raised.case()

    status, problem = api.post(
        f"/cases/{case.pk}/compensate", digest="f" * 64, revision=case.revision, reason="x"
    )
    assert (status, problem["revision"]) == (409, case.revision)
    status, _ = api.post(
        f"/cases/{case.pk}/close", outcome="expected", reason="x", revision=case.revision + 7
    )
    assert status == 409


def test_the_guide_says_how_a_case_ends_and_why_an_effect_is_not_undone():
    """Codes are found in the source: `CannotUndo` is made with a literal or a constant, or with one
    of two.
    """
    guide = (ROOT / "docs" / "recovery-api.md").read_text()
    made = [
        one.args[0]
        for one in ast.walk(ast.parse(inspect.getsource(drafting)))
        if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "CannotUndo"
    ]
    parts = [one for code in made for one in ast.walk(code)]
    codes = {str(one.value) for one in parts if isinstance(one, ast.Constant)}
    named = [one.id for one in parts if isinstance(one, ast.Name) and one.id.isupper()]
    codes |= {getattr(drafting, name) for name in named}

    assert codes >= {"irreversible", "no_twin", "masked"}
    # A plan that is too long is no effect's trouble, and is said in `why_not`.
    unsaid = [one for one in (codes - {"too_long"}) | set(CaseOutcome) if f"`{one}`" not in guide]
    assert unsaid == []


def test_a_query_that_cannot_be_read_says_where(raised, api):
    status, problem = api.get("/cases", q="is:open risk:enormous")

    assert (status, problem["position"]) == (422, 13)


def test_strangers_viewers_and_agents_are_kept_out(raised, client, api, globex, dev, agent, leads):
    from tests.people import person

    case = raised.case()
    stranger = Caller(client, globex, dev)
    assert stranger.get(f"/cases/{case.pk}")[0] == 404
    viewer = Caller(client, case.workspace, person("vera", leads))
    assert viewer.get(f"/cases/{case.pk}")[0] == 200
    status, _ = viewer.post(
        f"/cases/{case.pk}/close", outcome="expected", reason="x", revision=case.revision
    )
    assert status == 403
    _, token = keys.create_key(agent, by=None, name="agent")
    viewer.headers = {"Authorization": f"Bearer {token}"}
    assert viewer.get(f"/cases/{case.pk}")[0] == 401


def test_drift_at_the_post_is_a_conflict_with_its_difference(raised, shop, api):
    case = raised.case()
    _, preview = api.get(f"/cases/{case.pk}/preview")
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")

    status, problem = api.post(
        f"/cases/{case.pk}/compensate",
        digest=preview["digest"],
        revision=preview["revision"],
        reason="Wrong priority",
    )

    assert (status, problem["type"]) == (409, "urn:amends:problem:drifted")
    assert (problem["revision"], problem["digest"]) == (case.revision, preview["digest"])
    [step] = problem["drifted"]
    hidden = "hidden: needs view_sensitive"
    assert step["drift"] == [
        {"field": "assignee", "was": hidden, "agent_wrote": hidden, "now": hidden}
    ]
    assert step["choices"] == ["rebase", "override", "skip"]
    chosen = {str(step["effect"]): "rebase"}
    _, preview = api.get(f"/cases/{case.pk}/preview", choice=f"{step['effect']}:rebase")
    status, plan = api.post(
        f"/cases/{case.pk}/compensate",
        digest=preview["digest"],
        revision=preview["revision"],
        reason="Wrong priority",
        choices=chosen,
    )
    assert status == 200, plan


def test_an_agent_reads_the_cases_of_its_own_runs_and_of_nobody_else(
    client, raised, acme, globex, agent
):
    case = raised.case()
    neighbour = Agent.objects.create(workspace=acme, name="refund-desk")
    abroad = Agent.objects.create(workspace=globex, name=agent.name)

    def read(path, who, *scopes):
        _, token = keys.create_key(who, by=None, name="test", scopes=scopes or ("read",))
        answer = client.get(f"/api/v1/agent{path}", headers={"Authorization": f"Bearer {token}"})
        return answer.status_code, answer.json()

    status, listed = read("/cases?run=run_1", agent)
    assert (status, [one["id"] for one in listed["cases"]], listed["after"]) == (200, [case.pk], "")
    status, found = read(f"/cases/{case.pk}", agent)
    assert (status, found["run"], found["state"], found["plans"]) == (200, "run_1", "open", [])
    assert not {"customer", "customer_name", "claimed_by", "closing_reason"} & set(found)
    for other in (neighbour, abroad):
        assert read("/cases", other) == (200, {"cases": [], "after": ""})
        assert read(f"/cases/{case.pk}", other)[0] == 404
    assert read("/cases", agent, "ingest")[0] == 403


def test_two_people_cannot_both_act(raised, api, finn):
    case = raised.case()
    cases.claim(case, by=finn, seen=case.revision)
    _, preview = api.get(f"/cases/{case.pk}/preview")

    status, problem = api.post(
        f"/cases/{case.pk}/compensate",
        digest=preview["digest"],
        revision=preview["revision"],
        reason="x",
    )

    assert status == 409
    assert "Finn has claimed it" in problem["detail"]


def test_partly_closed_with_an_owner_and_a_date(raised, api, finn, dev):
    case = raised.case()
    path = f"/cases/{case.pk}/close"
    given = {"outcome": "partly", "reason": "The seat is gone", "revision": case.revision}

    status, problem = api.post(path, **given)
    assert (status, problem["detail"]) == (
        422,
        "Say what is left, who looks after it, and until when.",
    )
    left = {"text": "Seat 12A", "owner": finn.email, "due_at": "2099-01-01T00:00:00Z"}
    for stranger in (dev.email, "nobody@example.com"):  # who is elsewhere at this desk is nobody
        _, problem = api.post(path, **given, left=[left | {"owner": stranger}])
        assert problem["detail"] == f"There is nobody here with the address {stranger}."
    hour_of_nobody = left | {"due_at": "2099-01-01T00:00:00"}
    status, problem = api.post(path, **given, left=[hour_of_nobody])
    assert (status, "timezone" in str(problem)) == (422, True)
    status, closed = api.post(path, **given, left=[left])

    assert (status, closed["outcome"]) == (200, "partly")
    assert api.post(path, **given, left=[left]) == (200, closed), "the answer did not come"
    for other in ({"left": [left | {"text": "Seat 12B"}]}, {"reason": "x"}, {"revision": 99}):
        assert api.post(path, **(given | {"left": [left]} | other))[0] == 409, other
    assert case.residues.get().owner == finn


def test_what_is_left_is_listed_and_ended_once(raised, api, finn, globex, dev, client):
    case = raised.case()
    left = {"text": "Seat 12A", "owner": finn.email, "due_at": "2099-01-01T00:00:00Z"}
    given = {"outcome": "partly", "reason": "The seat is gone", "revision": case.revision}
    api.post(f"/cases/{case.pk}/close", **given, left=[left])
    _, found = api.get("/residues")
    [one] = found["residues"]
    path = f"/residues/{one['id']}/done"
    assert (one["text"], one["owner"], one["done_at"]) == ("Seat 12A", finn.email, None)
    assert Caller(client, globex, dev).post(path, note="x")[0] == 404

    status, done = api.post(path, note="Paid for the seat")

    assert (status, done["done_by"], done["note"]) == (200, "ada@example.com", "Paid for the seat")
    assert api.post(path, note="again")[0] == 409
    assert api.get("/residues")[1]["residues"] == []
    assert [one["id"] for one in api.get("/residues", state="done")[1]["residues"]] == [one["id"]]
    assert api.get("/residues", state="lost")[0] == 422


@pytest.mark.parametrize("path", ["/cases/1/preview", "/cases/999999/preview"])
def test_without_a_token_nothing_is_answered(client, db, path):
    assert client.get(f"/api/v1{path}").status_code == 401


def test_a_choice_that_cannot_be_read_is_left_out(raised, api):
    case = raised.case()

    for choice in ("\u00b2:skip", "9" * 5000 + ":skip", "x", ":", "1"):
        status, _ = api.get(f"/cases/{case.pk}/preview", choice=choice)
        assert status == 200, choice


def test_a_step_in_doubt_is_decided_and_a_closed_case_is_brought_back(lost, api):
    _, case = api.get(f"/cases/{lost.pk}")
    [step] = case["in_doubt"]["steps"]
    said = {"evidence": "it is there", "revision": case["revision"]}
    path = f"/cases/{lost.pk}/settle"

    assert api.post(path, outcome="applied", **said)[0] == 422, "of which?"
    assert api.post(path, step=step["step"], outcome="perhaps", **said)[0] == 422
    status, _ = api.post(path, step=step["step"], outcome="applied", **(said | {"revision": 99}))
    assert status == 409
    status, case = api.post(path, step=step["step"], outcome="again", **said)
    assert (status, case["in_doubt"]["steps"]) == (200, []), case
    assert api.post(path, step=step["step"], outcome="again", **said) == (200, case), "it was lost"
    others = [{"outcome": one} for one in ("skip", "no_effect", "applied")]
    for other in (*others, {"evidence": "it is not there"}, {"revision": case["revision"]}):
        given = {"outcome": "again", "step": step["step"]} | said | other
        assert api.post(path, **given)[0] == 409, other

    plan = Plan.objects.get()
    by_hand.advance(plan.pk)
    _, case = api.get(f"/cases/{lost.pk}")
    assert (case["state"], case["outcome"]) == ("closed", "restored")
    said = {"revision": case["revision"], "reason": "Again"}
    status, case = api.post(f"/cases/{lost.pk}/reopen", **said)
    assert (status, case["state"]) == (200, "open"), case
    assert api.post(f"/cases/{lost.pk}/reopen", **said) == (200, case), "the answer was lost"
    assert lost.reports.count() == 1
    assert api.post(f"/cases/{lost.pk}/reopen", **(said | {"reason": "x"}))[0] == 409
    assert api.post(f"/cases/{lost.pk}/reopen", revision=case["revision"], reason="x")[0] == 409


def test_many_cases_are_previewed_acted_on_and_looked_after(three, api, shop):
    status, seen = api.post("/bulk/preview", q="is:open")

    assert status == 200, seen
    assert [one["why"][:6] for one in seen["not_eligible"]] == ["Settle"]
    assert len(seen["eligible"]) == 2
    frozen = [
        {name: one[name] for name in ("case", "revision", "digest")} for one in seen["eligible"]
    ]
    frozen[1]["revision"] += 1
    status, job = api.post("/bulk", verb="compensate", reason="Same cause", cases=frozen)
    assert (status, job["state"]) == (200, "running"), job
    while bulk.sweep():
        pass
    _, job = api.get(f"/bulk/{job['job']}")
    assert [one["state"] for one in job["cases"]] == ["done", "refused"]
    assert job["state"] == "ended"
    assert api.post(f"/bulk/{job['job']}/stop")[0] == 200
    assert api.post("/bulk/preview")[0] == 422, "of which?"
    assert api.post("/bulk/preview", verb="burn", q="is:open")[0] == 422


def test_who_may_not_recover_and_who_is_from_elsewhere_starts_no_job(
    three, client, acme, globex, dev
):
    viewer = Caller(client, acme, person("vic", team(acme, "viewers", "view")))
    stranger = Caller(client, globex, dev)
    pk = Case.objects.first().pk

    assert viewer.post("/bulk/preview", q="is:open")[0] == 403
    assert viewer.post(f"/cases/{pk}/reopen", revision=1, reason="x")[0] == 403
    said = {"revision": 1, "evidence": "x", "outcome": "applied", "action": "act_1"}
    assert viewer.post(f"/cases/{pk}/settle", **said)[0] == 403
    assert stranger.post(f"/cases/{pk}/settle", **said)[0] == 404
    job = bulk.start(
        acme, "close", by=person("olga", team(acme, "seniors", "view", "recover")), reason="x",
        frozen=[bulk.FrozenCase(pk, 1, "")],
    )  # fmt: skip
    assert stranger.get(f"/bulk/{job.pk}")[0] == 404
    assert viewer.post(f"/bulk/{job.pk}/stop")[0] == 403


@pytest.mark.django_db(transaction=True)
def test_what_cannot_be_kept_or_is_not_here_starts_no_job(three, api):
    """Refused as a problem, wherever it stood; a job on cases that nobody has is none."""
    pk = Case.objects.order_by("pk")[0].pk
    here = {"case": pk, "revision": 1}
    unfit: list[dict[str, object]] = [
        {"cases": [{"case": pk, "revision": 2**63}]},
        {"cases": [{"case": pk, "revision": 1, "digest": "\0"}]},
        {"chosen": "named:\0"},
        {"cases": [here, {"case": pk + 100, "revision": 1}]},
        {"cases": [{"case": 10**30, "revision": 1}]},
    ]

    job: dict[str, object] = {"verb": "resume", "reason": "x", "cases": [here]}
    answers = [api.post("/bulk", **(job | one)) for one in unfit]
    settled = api.post(
        f"/cases/{pk}/settle", revision=1, outcome="applied", evidence="x", action="a\0"
    )

    assert [(status, said["status"]) for status, said in [*answers, settled]] == [(422, 422)] * 6
    assert not BulkJob.objects.exists()
