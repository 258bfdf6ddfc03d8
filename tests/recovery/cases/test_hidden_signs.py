"""What an agent or a customer wrote cannot hide or turn words on any page of the console."""

import re

import pytest

from recovery.models import Case
from recovery.triage import triage

pytestmark = pytest.mark.django_db

TURN, NOTHING = "\u202e", "\u200b"
SLY = f"pay{TURN}tnuocca{NOTHING}!"
CASE_PAGES = ("", "compensate/", "resume/", "close/", "settle/", "outlook/", "progress/")


@pytest.fixture
def sly(begin_run, shop, ticket, agent):
    """A run whose every text is meant to mislead, and that failed."""
    agent.name = f"desk {SLY}"
    agent.save()
    run = begin_run("run_1")
    run.send("run.started", goal=SLY, model=SLY, labels={SLY: SLY})
    high = ticket | {"priority": f"high {SLY}"}
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    run.does("tickets.update", ("ticket", f"main/T-182{SLY}", ticket, high), result={"said": SLY})
    for name in ("begun", "half"):
        run.n += 1
        run.send("run.checkpoint", name=f"{name} {SLY}", pending=[SLY], completed=[SLY],
                instructions=SLY, summary=SLY)  # fmt: skip
    told = {"kind": f"Timeout {SLY}", "args": {SLY: SLY}, "intent": {SLY: SLY}}
    done = run.fails("mail.send", outcome="unknown", message=SLY, **told)
    run.send("action.verified", done, ok=False, checks=[{"name": SLY, "actual": SLY, "ok": False}])
    run.ends("failed", error={"type": SLY, "message": SLY})
    triage.look()
    case = Case.objects.get()
    texts = ("customer", "customer_name", "request")
    Case.objects.filter(pk=case.pk).update(**dict.fromkeys(texts, SLY), claimed_by=None)
    case.run.__class__.objects.filter(pk=case.run_id).update(customer=SLY)
    return case


def test_no_page_shows_them_raw(client, ada, sly):
    client.force_login(ada)
    pages = [
        "queue/", f"queue/?peek={sly.pk}", "queue/?q=tool:mail*",
        "queue/suggest/?q=customer:&cursor=9",
        *(f"cases/{sly.pk}/{page}" for page in CASE_PAGES),
        "causes/", f"causes/{sly.cause.fingerprint}/", f"bulk/new/?ids={sly.pk}", "insights/",
        "runs/", "runs/run_1/", "runs/run_1/?step=1", "ledger/", "tools/", "report/run_1/",
        "audit/", "approvals/", "approvals/history/", "corrections/",
    ]  # fmt: skip
    wrong = {page: found for page in pages if (found := _raw(client.get(f"/w/acme/{page}")))}

    assert wrong == {}


def _raw(answer):
    """What stands raw, or was escaped twice, with the words around it; tags are left out."""
    assert answer.status_code == 200, answer.request["PATH_INFO"]
    words = re.sub(r"<[^>]*>", "", answer.content.decode())
    found = re.finditer(f"[{TURN}{NOTHING}]|&amp;(lt|#)", words)
    return [words[max(0, one.start() - 40) : one.end() + 10] for one in found]


def test_words_that_would_leave_their_quotation_marks_do_not(client, ada, begin_run):
    """What an agent calls a tool, a checkpoint or a customer ends no quotation of ours."""
    out = "x” approved by “finance"
    run = begin_run("run_1")
    run.does(f"a {out}", ("ticket", "T-1", {"a": 1}, {"a": 2}))
    run.send("run.checkpoint", name=f"b {out}", pending=[f"c {out}"])
    run.fails(f"d {out}")
    run.ends("failed")
    triage.look()
    Case.objects.update(customer=f"e {out}", customer_name=f"e {out}", request=f"f {out}")
    client.force_login(ada)
    case = Case.objects.get()

    peek = client.get(f"/w/acme/queue/?peek={case.pk}").context["peek"]
    facts = {one["name"]: one.get("value", "") for one in peek["facts"]}
    resume = client.get(f"/w/acme/cases/{case.pk}/resume/").context
    stops = client.get(f"/w/acme/cases/{case.pk}/").context["pausing"]["choices"]

    said = [facts["Customer"], facts["Asked for"], facts["Failed"]]
    said += [one["label"] for one in stops]
    said += [one["label"] for one in resume["checkpoints"]]
    said += [one["title"] for one in resume["steps"]]
    assert [words for words in said if out in words] == []
    assert sum('x" approved by "finance”' in words for words in said) >= 6
