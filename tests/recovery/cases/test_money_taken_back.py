"""Money goes back to a person, or is taken back from them: their page says which of the two."""

import pytest
from django.utils import timezone, translation
from django.utils.translation import gettext

from ledger.models import Action, Effect
from recovery import corrections
from recovery.corrections import facts, wording
from recovery.models import Plan, Step
from recovery.views.public import trail_context
from tests.approvals.cast import put_in_force
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand


def told(operation, kind):
    """A credit of €25.00 that an operation of money undid."""
    credit = {"amount": 2_500, "currency": "EUR"}
    effect = Effect(
        target_type="voucher",
        target_id="V-1",
        compensated="compensated",
        has_before=True,
        has_after=True,
        after=credit,
    )
    preview = {"money": {"amount_minor": 2_500, "currency": "EUR"}}
    plan = Plan(automatic=True)
    step = Step(plan=plan, state="verified", operation=operation, preview=preview)
    step.reversibility, step.moved_at = "compensable", timezone.now()
    action = Action(action="act_1", tool="billing.credit")
    one = facts.CorrectionItem(action, effect, action)
    return facts.item(one, effect, step, kind=kind)


@pytest.mark.parametrize(
    ("operation", "kind", "word"),
    [
        ("reverse_credit", "REVERSE", "Taken back"),
        ("reverse_credit", "", "Taken back"),
        ("reverse_refund", "", "Taken back"),
        ("refund", "", "Refunded"),
        ("payments.refund_charge", "", "Refunded"),
        ("give_back", "REFUND", "Refunded"),
    ],
)
def test_money_is_refunded_where_operation_or_policy_say_so_and_else_taken_back(
    operation, kind, word
):
    assert told(operation, kind)["word"] == word


@pytest.mark.parametrize(
    ("language", "did", "stands"),
    [
        ("en", "It was taken back: €25.00.", "Voucher V-1 has been taken back."),
        ("de", "Wurde zurückgenommen: 25,00~€.", "Gutschein V-1: zurückgenommen."),
        ("fr", "Cela a été annulé : 25,00~€.", "Bon V-1 : annulation effectuée."),
        ("es", "Se retiró: 25,00~€.", "Vale V-1: se retiró."),
    ],
)
def test_whom_a_credit_is_taken_from_is_promised_no_money_in_any_language(
    raised, language, did, stands
):
    item = told("reverse_credit", "REVERSE")
    [correction] = corrections.draft(raised.case())
    correction.facts["items"] = [item]
    with translation.override(language):
        page = trail_context(correction, {})
        promise = gettext(wording.SENTENCES["look_for_money"])

    [line] = page["changed"]
    assert line["did"] == did.replace("~", "\N{NO-BREAK SPACE}")
    assert page["now"] == [stands]
    assert promise not in page["to_do"]


@pytest.mark.parametrize(("kind", "word"), [("REFUND", "refunded"), ("REVERSE", "taken back")])
def test_the_case_calls_an_exact_undo_of_money_what_the_trail_calls_it(
    raised, acme, ada, client, kind, word
):
    case = raised.case()
    by_hand.advance(submitted(case, ada).pk)
    paid = {"money": {"amount_minor": 2_500, "currency": "EUR"}}
    assert Step.objects.filter(reversibility="exact").update(preview=paid) == 1
    put_in_force(acme, ada, {"policies": {"tickets.*": {"compensation": kind}}})
    client.force_login(ada)

    [line] = client.get(f"/w/acme/cases/{case.pk}/").context["effects"]

    assert line["standing"] == word
    [told] = corrections.draft(case)[0].facts["items"]
    assert told["word"].lower() == word
