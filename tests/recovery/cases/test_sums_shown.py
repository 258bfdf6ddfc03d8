"""Sums on the page of a case: a number that the policy calls a sum stands as money beside it."""

from approvals import versions
from tests.people import person, team

PREVIEWED = """
agentSafety:
  tools:
    vouchers.issue:
      class: internal_update
      preview: {kind: money, amount: args.amount, currency: args.currency}
  policies:
    "vouchers.*": {risk: LOW, approval: AUTO}
"""


def test_a_sum_in_a_snapshot_stands_as_money_beside_the_raw_number(begin_run, acme, client):
    """By the tool's preview, which says that this number is a sum; any other stays a number."""
    versions.activate(versions.save(acme, PREVIEWED, by=None), by=None)
    run = begin_run()
    before, after = ({"amount": one, "seats": one, "fee_minor": one, "currency": "jpy"}
                     for one in (7_000, 9_500))  # fmt: skip
    args = {"amount": 9_500, "currency": "eur"}
    bare = ("voucher", "V-1", None, {"amount": 9_500, "state": "issued"})
    run.does("vouchers.issue", bare, planned={"args": args})
    run.does("vouchers.issue", ("voucher", "V-2", before, after), planned={"args": args})
    run.ends("failed", error={"type": "Broken", "message": "boom"})
    case = run.case()
    client.force_login(person("finn", team(acme, "auditors", "view", "view_sensitive")))

    shown = client.get(f"/w/acme/cases/{case.pk}/")

    made, changed = (
        {row["field"]: row for row in item["diff"]} for item in shown.context["story"]["items"]
    )
    assert (made["amount"]["now"], made["amount"]["now_money"]) == (9_500, "€95.00")
    assert "now_money" not in made["state"]
    both = (changed["amount"]["was_money"], changed["amount"]["now_money"])
    assert both == ("¥7\u00a0000", "¥9\u00a0500")
    assert changed["fee_minor"]["now_money"] == "¥9\u00a0500"
    assert "now_money" not in changed["seats"]
    assert '9500 <span class="diff-note">€95.00</span>' in shown.content.decode()
