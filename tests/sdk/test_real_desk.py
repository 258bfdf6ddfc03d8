"""The client against the desk itself: its web process, its database, its people."""

import pytest

pytestmark = pytest.mark.django_db(transaction=True)
MIA = {"id": "mia", "name": "Mia Li"}


def test_what_an_agent_says_of_a_run_is_folded(real_desk, northwind):
    from ledger.desk_events import masking_key
    from ledger.models import Run

    with real_desk.run("Move my return flight", on_behalf_of=MIA, run="run_1") as run:
        run.checkpoint("half", state={"next": "mail", "password": "canary"}, summary="Half done.")
        run.summary = "Nothing to move"
    assert real_desk.flush(60)

    assert real_desk.parked() == []
    kept = Run.objects.get(workspace=northwind, run="run_1")
    assert (kept.state, kept.request, kept.customer) == (
        "completed",
        "Move my return flight",
        "mia",
    )
    [checkpoint] = kept.checkpoints.all()
    password = masking_key(northwind).placeholder("password", "canary")
    assert checkpoint.state == {"next": "mail", "password": password}


def test_the_program_that_comes_with_a_new_key_runs_as_it_stands(
    web, token, spool_file, northwind, monkeypatch
):
    from ledger.models import Effect
    from workspaces.quick_starts import PYTHON

    for name, value in {"URL": web.url, "KEY": token, "SPOOL": str(spool_file)}.items():
        monkeypatch.setenv(f"AMENDS_{name}", value)

    exec(PYTHON, {})  # noqa: S102 - our own text

    effect = Effect.objects.get(workspace=northwind)
    assert (effect.action.tool, effect.action.run.state) == ("notes.write", "completed")
    assert (effect.before, effect.after) == (None, {"text": "hello"})
    assert effect.action.result == {"text": "hello"}, "what a second time is given"


def test_a_large_state_is_kept_as_a_blob(real_desk, northwind):
    from ledger.models import Blob, Checkpoint

    with real_desk.run("Import", run="run_2") as run:
        run.checkpoint("half", state={"rows": ["x" * 90] * 1000})
    assert real_desk.flush(60)

    assert real_desk.parked() == []
    checkpoint = Checkpoint.objects.get(run__run="run_2")
    assert checkpoint.state_ref.removeprefix("sha256:") == Blob.objects.get().sha256


def test_an_agent_reports_a_run_of_its_own_and_people_look_at_it(real_desk, northwind):
    from ledger.desk_events import masking_key
    from ledger.models import Event
    from recovery.models import Case

    with real_desk.run("Move my return flight", run="trip/7") as run:
        pass

    number = run.report("I moved the outbound flight; card 4242 4242 4242 4242")
    again = run.report("I moved the outbound flight; card 4242 4242 4242 4242")

    case = Case.objects.get()
    assert number == again == case.pk
    assert (case.state, case.reasons) == ("open", ["reported"])
    [report] = case.reports.all()
    assert (report.source, report.person) == ("agent", None)
    card = masking_key(northwind).placeholder("card", "4242424242424242")
    assert report.text == f"I moved the outbound flight; card {card}"
    said = Event.objects.get(type="case.reported")
    assert (said.actor_kind, said.actor) == ("desk", "agent")
