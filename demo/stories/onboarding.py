"""Onboarding: HR record → paid licence → welcome mail, and the mail gateway answers 504."""

import secrets

import amends
from demo.stories.stage import MONDAY, Stage, next_week

AGENT = "people-ops"
TRIES = 3


def play(stage: Stage, *, name: str = "Lena Fischer", fails: bool = True) -> str:
    """Play it; the run's id. `fails` makes the gateway refuse each of the three tries."""
    desk, staff_id = stage.desks[AGENT], f"E-{secrets.randbelow(9000) + 1000}"
    person = {
        "id": staff_id,
        "name": name,
        "contact": f"{name.partition(' ')[0].lower()}@skyline.example",
    }
    if fails:
        stage.break_next(stage.where.mailbox, times=TRIES)
    run = desk.run(
        f"Onboard {name}, who starts on Monday as a dispatcher",
        on_behalf_of=person,
        model="demo-small",
        goal="A new colleague can work on the first day",
    )
    try:
        with run:
            _create_record(stage, run, staff_id, name)
            run.checkpoint(
                "record_made", state={"staff": staff_id}, summary="The HR record stands."
            )
            _buy_licence(stage, run, staff_id)
            _welcome(stage, run, person["contact"], name)
    except amends.NoEffect:
        pass  # the run says that it failed; a person decides what becomes of it
    return run.id


def _create_record(stage: Stage, run: amends.Run, staff_id: str, name: str) -> None:
    row = {"id": staff_id, "name": name, "role": "dispatcher", "starts_on": f"{next_week(MONDAY)}",
           "state": "active"}  # fmt: skip
    with run.action(
        "hr.create_record",
        target=("employee", staff_id),
        args=row,
        before=None,
        effect_class="internal_update",
    ) as action:
        stage.write("staff", row)
        action.succeeded(
            result={"id": staff_id},
            after=stage.read("staff", staff_id),
            summary=f"created the HR record of {name}",
            reversibility="exact",
        )


def _buy_licence(stage: Stage, run: amends.Run, staff_id: str) -> None:
    with run.action(
        "licences.assign",
        target=("licence", f"for {staff_id}"),
        args={"holder": staff_id, "plan": "team"},
        effect_class="external_reversible",
    ) as action:
        seat = stage.assign_licence(staff_id, key=action.row.key)
        action.succeeded(
            result=seat,
            effects=[
                {
                    "target": ("licence", seat["id"]),
                    "before": None,
                    "after": seat,
                    "summary": "bought a team licence at $24.00 a month",
                    "reversibility": "compensable",
                }
            ],
        )


def _welcome(stage: Stage, run: amends.Run, contact: str, name: str) -> None:
    """Three tries under one key; the gateway refuses, so nothing is sent."""
    text = f"Hello {name.partition(' ')[0]},\n\nwelcome aboard. Your accounts are ready.\n"
    for number in range(1, TRIES + 1):
        try:
            with run.action(
                "mail.send_welcome",
                target=("mail", contact),
                args={"to": contact, "subject": "Welcome to Skyline"},
                effect_class="external_irreversible",
                retry="tool" if number > 1 else None,
                intent={"goal": "welcome", "reason": "She should find her accounts on day one"},
            ) as action:
                sent = stage.send_mail(contact, "Welcome to Skyline", text)
                action.succeeded(result=sent, after=sent, summary="sent the welcome mail",
                                 reversibility="irreversible")  # fmt: skip
                return
        except amends.NoEffect:
            if number == TRIES:
                raise
