"""What a manifest does not know it does not make up: null, numbers, what was never recorded."""

import pytest

from connectors import calls, manifest
from connectors.contract import UNSET, CannotRead, Money, Observation, Refused, Target
from tests.connectors.test_http import serves

ISSUES = """
name: issues
version: "1"
title: Issues
auth: {kind: none}
operations:
  assign:
    title: "Assign {target.id}"
    reversibility: exact
    idempotency: natural_key
    args: {"note?": text}
    read: {request: {method: GET, path: "/issues/{target.id}"}, state: {assignee: assignee}}
    apply:
      method: PATCH
      path: "/issues/{target.id}"
      headers: {If-Match: "{expected.revision}", X-Note: "{args.note}"}
      json: {assignee: "{before.assignee}", note: "{args.note}"}
    answers: [{status: [200], outcome: applied}]
    leaves: {assignee: "{before.assignee}"}
  pay:
    title: "Pay {money} for {target.id}"
    kind: money
    reversibility: compensable
    idempotency: native_key
    window_seconds: 3600
    probe: eventual
    horizon_seconds: 30
    args: {amount: any, currency: text, "reference?": text}
    money: {amount: args.amount, currency: args.currency}
    read: {request: {method: GET, path: "/issues/{target.id}"}, state: {assignee: assignee}}
    apply:
      method: POST
      path: "/pay/{args.amount}"
      form: {amount: "{args.amount}", more: "{args.more}", lines: "{args.lines}"}
    answers: [{status: [200], outcome: applied}]
    trace:
      request: {method: GET, path: /payments}
      items: data
      where: {reference: "{args.reference}"}
      failed: [{status: failed}]
"""
T_1 = Target("issue", "T-1")


@pytest.fixture
def issues(tmp_path, settings, connect, outbound):
    """Makes a connection by the manifest, to a server that answers everything with one page."""
    outbound.append("127.0.0.1")
    settings.CONNECTOR_MANIFESTS = [str(tmp_path)]

    def made(url="https://issues.example", text=ISSUES):
        (tmp_path / "issues.yaml").write_text(text)
        manifest.manifests.cache_clear()
        return connect("issues", "http", {"manifest": "issues", "base_url": url}, {})

    yield made
    manifest.manifests.cache_clear()


def test_null_that_was_recorded_is_sent_and_must_be_found(issues):
    """Nobody had the issue. A field that is left out is not put back, and nothing would differ."""
    connection, was, left = issues(), {"assignee": None}, {"assignee": "finn"}
    taken = Observation(found=True, state=left)

    card = calls.preview(connection, "assign", {"note": None}, T_1, before=was, expected=left)

    assert card.will_send["json"] == {"assignee": None}
    assert card.must_be_true == {"exists": True, "fields": {"assignee": None}}
    assert not calls.satisfied(connection, "assign", {}, T_1, taken, before=was, expected=left)


@pytest.mark.parametrize("before", [UNSET, None, {"title": "Rain"}])
def test_of_what_was_never_recorded_nothing_is_as_it_should_be(issues, before):
    with pytest.raises(Refused, match="was not recorded"):
        calls.preview(issues(), "assign", {}, T_1, before=before)


@pytest.mark.parametrize("leaves", ['{assignee: "{before.assignee}"}', "{status: open}"])
def test_what_was_masked_is_not_put_back_as_it_reads(issues, leaves):
    """Nobody here knows the value, and the mark of it would stand in the tracker."""
    text = ISSUES.replace('leaves: {assignee: "{before.assignee}"}', f"leaves: {leaves}")
    connection = issues(text=text)
    was = {"assignee": "⟦masked:email⟧", "title": "⟦masked:secret⟧"}

    with pytest.raises(Refused, match="a masked value"):
        calls.preview(connection, "assign", {}, T_1, before=was)
    card = calls.preview(connection, "assign", {}, T_1, before=was | {"assignee": "mia"})

    assert card.will_send["json"] == {"assignee": "mia"}, "the title is not sent"


@pytest.mark.parametrize(
    ("there", "masked"),
    [
        ('path: "/people/{before.assignee}/issues/{target.id}"', True),
        ('path: "/issues/{target.id}?assignee={before.assignee}"', True),
        ('path: "/issues/{target.id}?title={before.title}"', False),
    ],
)
def test_what_was_masked_is_sent_in_no_path_and_no_query(issues, there, masked):
    text = ISSUES.replace('json: {assignee: "{before.assignee}", note: "{args.note}"}', "json: {}")
    apply = 'method: PATCH\n      path: "/issues/{target.id}"'
    connection = issues(text=text.replace(apply, f"method: PATCH\n      {there}"))
    was = {"assignee": "⟦masked:email⟧", "title": "Rain"}

    if masked:
        with pytest.raises(Refused, match="a masked value"):
            calls.preview(connection, "assign", {}, T_1, before=was)
    mia = calls.preview(connection, "assign", {}, T_1, before=was | {"assignee": "mia"})

    assert mia.will_send["path"].endswith(("/people/mia/issues/T-1", "=mia", "=Rain"))


def test_what_was_masked_is_sent_in_no_header_of_every_request(issues):
    text = ISSUES.replace("operations:", 'headers: {X-Was: "now {before.title}"}\noperations:')
    was = {"assignee": "mia", "title": "⟦masked:secret⟧"}

    with pytest.raises(Refused, match="a masked value"):
        calls.preview(issues(text=text), "assign", {}, T_1, before=was)


def test_a_condition_that_is_a_number_stays_in_its_header(issues):
    was, left = {"assignee": "mia"}, {"revision": 7}

    card = calls.preview(issues(), "assign", {}, T_1, before=was, expected=left)

    assert card.will_send["headers"] == {"If-Match": "7"}


@pytest.mark.parametrize(
    ("amount", "money", "title", "sent"),
    [
        (500.0, Money(500, "EUR"), "Pay €5.00 for T-1", "500"),
        (2**70, Money(2**70, "EUR"), None, str(2**70)),
        (12.5, None, "Pay 12.5 for T-1", "12.5"),
        ("500", None, "Pay 500 for T-1", "500"),
    ],
)
def test_an_amount_is_shown_as_it_is_sent_whichever_type_it_came_in(
    issues, amount, money, title, sent
):
    """Not as that of the whole charge, which was recorded."""
    args, charge = {"amount": amount, "currency": "eur"}, {"amount": 128600, "currency": "eur"}

    card = calls.preview(issues(), "pay", args, T_1, expected=charge)

    assert card.money == money
    assert title in {None, card.title}
    assert card.will_send["form"] == {"amount": sent}
    assert card.will_send["path"] == f"/pay/{sent}"


def test_a_form_has_no_null_and_no_words_of_python(issues):
    args = {"amount": 1, "currency": "eur", "more": {"a": None, "b": True}, "lines": [1.0, "x"]}
    text = ISSUES.replace('"reference?": text', "more: any, lines: any")

    card = calls.preview(issues(text=text), "pay", args, T_1)

    assert card.will_send["form"] == {"amount": "1", "more[b]": "true", "lines": '[1.0,"x"]'}


PAY = {"amount": 1, "currency": "eur"}
OURS = {"data": [{"reference": "r-1", "status": "succeeded"}], "assignee": "mia"}


def test_a_trace_by_what_is_not_known_takes_nobody_elses_for_ours(issues):
    with serves(OURS) as url:
        found = calls.probe(issues(url), "pay", PAY, T_1, key="k-1")

    assert (found.found, found.evidence) == ("cannot_tell", {"not_known": ["args.reference"]})


@pytest.mark.parametrize(
    ("given", "told", "found"),
    [(17, "17", "present"), ("17", 17, "present"), (17, "18", "absent"), (1, True, "absent")],
)
def test_a_number_that_a_service_gives_as_a_text_is_found_all_the_same(issues, given, told, found):
    """A payment that is there was taken for none, on which a second one rests."""
    text = ISSUES.replace('"reference?": text', '"reference?": any')
    with serves({"data": [{"reference": told}]}) as url:
        args = PAY | {"reference": given}
        assert calls.probe(issues(url, text), "pay", args, T_1, key="k-1").found == found


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ('<https://a.example/payments?page=2>; rel="next"', "cannot_tell"),
        ("</p?page=1>; rel=prev, </p?page=3>;rel=next", "cannot_tell"),
        ('</p?page=2>; rel="last next"', "cannot_tell"),
        ('</next>; rel="prev"', "absent"),
        ("", "absent"),
    ],
)
def test_a_list_that_goes_on_elsewhere_does_not_say_that_there_is_none(issues, link, found):
    with serves({"data": []}, link=link) as url:
        args = PAY | {"reference": "r-1"}
        assert calls.probe(issues(url), "pay", args, T_1, key="k-1").found == found


@pytest.mark.parametrize("line", ["where: {}", "failed: [{status: failed}, {}]"])
def test_a_trace_that_everything_fits_is_none(line):
    """Whatever was found there would be ours, or would have failed."""
    name = line.partition(":")[0]
    old = next(one.strip() for one in ISSUES.splitlines() if one.strip().startswith(f"{name}:"))

    with pytest.raises(ValueError, match="pay: of a trace"):
        manifest.parsed(ISSUES.replace(old, line).encode())


@pytest.mark.parametrize(
    ("status", "reference", "ok"),
    [("succeeded", "r-1", True), ("failed", "r-1", False), ("succeeded", "r-2", False)],
)
def test_that_the_target_is_there_is_no_sign_that_it_was_done(issues, status, reference, ok):
    page = {"data": [{"reference": "r-1", "status": status}], "assignee": "mia"}
    with serves(page) as url:
        args = PAY | {"reference": reference}
        check = calls.verify(issues(url), "pay", args, T_1, key="k-1")

    assert check.ok is ok


def test_what_the_service_does_not_tell_is_read_back_later(issues):
    with serves(OURS) as url, pytest.raises(CannotRead, match="does not tell"):
        calls.verify(issues(url), "pay", PAY, T_1, key="k-1")


def test_a_card_shows_of_the_sum_in_words_what_is_sent_of_it(issues):
    """It stood in the request on the card, and was not sent: it is words for the title."""
    text = ISSUES.replace('lines: "{args.lines}"', 'lines: "{args.lines}", words: "{money}"')
    args = {"amount": 500, "currency": "eur"}

    card = calls.preview(issues(text=text), "pay", args, T_1)

    assert card.title == "Pay €5.00 for T-1"
    assert card.will_send["form"] == {"amount": "500"}


def test_what_stands_there_later_is_in_no_header_of_all_requests(issues):
    general = 'headers: {x-for: "{observed.state.assignee}"}'
    text = ISSUES.replace("operations:", f"{general}\noperations:")
    with pytest.raises(Refused, match="which nobody has approved"):
        calls.preview(issues(text=text), "assign", {}, T_1, before={"assignee": "mia"})


@pytest.mark.parametrize("sent", ["{observed.state.assignee}", "{observed.state}", "{observed}"])
def test_what_stands_there_later_is_sent_by_no_manifest(issues, sent):
    """Nobody has seen it when they say yes: the card left it out, and it was sent as it was."""
    text = ISSUES.replace('note: "{args.note}"}', f'note: "{sent}"}}')
    seen = Observation(found=True, state={"assignee": "eve"})
    with serves({}) as url:
        connection = issues(url, text)
        with pytest.raises(Refused, match="which nobody has approved"):
            calls.preview(connection, "assign", {}, T_1, before={"assignee": "mia"})
        answer = calls.apply(
            connection, "assign", {}, T_1, key="k-1", before={"assignee": "mia"}, observed=seen
        )

    assert (answer.outcome, "nobody has approved" in answer.detail) == ("no_effect", True)


def test_another_manifest_is_another_version_of_what_people_approve(issues, tmp_path):
    connection = issues()
    was = calls.connector_version(connection)

    manifest.manifests.cache_clear()
    assert calls.connector_version(connection) == was
    (tmp_path / "issues.yaml").write_text(f"{ISSUES}    limit_seconds: 14\n")
    manifest.manifests.cache_clear()

    assert was.startswith("http@1.1+")
    assert calls.connector_version(connection) not in {was, "http@1.1"}


def test_without_its_manifest_a_connection_still_has_a_version(issues, settings):
    connection = issues()
    settings.CONNECTOR_MANIFESTS = []
    manifest.manifests.cache_clear()

    assert calls.connector_version(connection) == "http@1.1"
