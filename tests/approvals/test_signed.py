"""A decision that its person signed: who owns the database cannot make one."""

import hashlib
import json
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ed448
from django.db import connection
from fido2.cose import CoseKey
from fido2.utils import websafe_encode

from amends.protocol import signatures as offline
from amends.protocol.proofs import NotProven
from amends.protocol.vocabulary import EventType
from approvals import grants, inbox, signatures, signing_keys, versions
from approvals.models import Approval, Decision, SigningKey
from approvals.policy import Invalid
from ledger import desk_events, logkeys, sealer
from ledger.models import Event
from tests.approvals.cast import ask as ask_for
from tests.approvals.cast import now, put_in_force, told, waiting
from tests.approvals.door import Agent as Trip
from tests.approvals.security_key import DESK, FLAG, SecurityKey
from tests.people import person, team
from workspaces import delegations, teams
from workspaces.free_text import InvalidInput

pytestmark = pytest.mark.django_db

SIGNED = {"policies": {"pay.*": {"approval": "MANUAL", "risk": "HIGH"}}, "signedFrom": "HIGH"}


@pytest.fixture(autouse=True)
def desk(settings, tmp_path):
    settings.AMENDS_URL = DESK
    settings.AMENDS_HEADS_FOLDER = str(tmp_path)
    sealer._last.clear()
    yield
    sealer._last.clear()


@pytest.fixture
def seal(acme, django_capture_on_commit_callbacks):
    """Everything said so far is under a head that is kept outside."""

    def now():
        with django_capture_on_commit_callbacks(execute=True):
            sealer.seal(acme)

    return now


def enrol(workspace, person, key, signer=None):
    options = signatures.enrolment_options(workspace, person, key.row)
    return signatures.enrol(workspace, key.row, by=person, answer=(signer or key).sign(options))


@pytest.fixture
def blue(acme, ben, seal):
    """Ben's key, on record."""
    key = SecurityKey(ben)
    enrol(acme, ben, key)
    seal()
    return key


def signed_yes(approval, person, key, **how):
    options = signatures.options(approval, person)
    assert isinstance(options, dict), options
    answer = key.sign(options, **how)
    return inbox.grant(approval, by=person, seen=approval.digest, signed=answer)


@pytest.fixture
def asked(ask, blue, seal):
    """A plan whose approval has to be signed, asked for after Ben's key was on record."""
    approval = ask(signed=True)
    seal()
    return approval


@pytest.fixture
def granted(asked, ben, blue, seal):
    signed_yes(asked, ben, blue)
    seal()
    asked.refresh_from_db()
    assert asked.state == "granted"
    return asked


def forge(table, assignments, *values):
    """As who owns the database does."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(f"UPDATE {table} SET {assignments}", values)
        cursor.execute("SET session_replication_role = origin")


def test_a_key_of_a_curve_by_which_nobody_can_check_is_not_put_on_record(acme, ben):
    """An authenticator may offer Ed448 where it was asked for EdDSA."""
    public = ed448.Ed448PrivateKey.generate().public_key().public_bytes_raw()
    key = SecurityKey(ben, cose=CoseKey({1: 1, 3: offline.EDDSA, -1: 7, -2: public}))

    with pytest.raises(InvalidInput, match="this is -8, curve 7"):
        signatures.enrolment_options(acme, ben, key.row)


def test_what_ben_signed_is_used_once_and_what_he_only_clicked_never(asked, ben, blue):
    with pytest.raises(signatures.NotSigned, match="did not sign"):
        inbox.grant(asked, by=ben, seen=asked.digest)
    assert not Decision.objects.exists()

    signed_yes(asked, ben, blue)

    assert grants.use(asked.pk, asked.digest)
    assert not grants.use(asked.pk, asked.digest)
    assert grants.lost(asked.pk, asked.calls[0]["digest"], signed=True) == ""


def test_a_yes_that_was_written_into_the_database_is_not_used(asked, ben):
    """With all that belongs to it: the row, the state and the event in the ledger."""
    Decision.objects.create(approval=asked, person=ben, granted=True, seen_digest=asked.digest)
    desk_events.record(
        asked.workspace, EventType.APPROVAL_GRANTED, by=ben, part="gate",
        data={"approval": asked.pk, "digest": asked.digest},
    )  # fmt: skip
    Approval.objects.update(was="waiting", state="granted")

    assert not grants.use(asked.pk, asked.digest)

    Approval.objects.update(was="granted", state="used", signed=False)
    call = asked.calls[0]["digest"]
    assert "did not sign it" in grants.lost(asked.pk, call, signed=True)


def test_the_signature_of_another_question_is_none_of_this_one(asked, ask, ben, blue, seal):
    other = ask(signed=True)
    seal()
    answer = blue.sign(signatures.options(other, ben))
    with pytest.raises(signatures.NotSigned):
        inbox.grant(asked, by=ben, seen=asked.digest, signed=answer)

    signed_yes(other, ben, blue)
    signed_yes(asked, ben, blue)
    copied = other.decisions.get().signature
    Decision.objects.filter(approval=asked).update(signature=copied)
    assert "something else was signed" in signatures.lacking(asked)
    assert not grants.use(asked.pk, asked.digest)


def test_each_byte_of_a_signature_counts(granted):
    """One character of any part is another one: nothing of it is believed."""
    whole = granted.decisions.get().signature
    assert signatures.lacking(granted) == ""
    for part, text in whole.items():
        for place in range(0, len(text) - 2, 7):
            other = "A" if text[place] != "A" else "B"
            changed = whole | {part: text[:place] + other + text[place + 1 :]}
            Decision.objects.update(signature=changed)
            assert signatures.lacking(granted), (part, place)
    Decision.objects.update(signature=whole)
    assert grants.use(granted.pk, granted.digest)


def test_what_was_signed_is_bound_to_its_bytes_its_person_and_its_number(granted, cleo):
    Approval.objects.update(digest="f" * 64)
    granted.refresh_from_db()
    assert signatures.lacking(granted)
    Approval.objects.update(digest=granted.decisions.get().seen_digest)
    Decision.objects.update(person=cleo)
    granted.refresh_from_db()
    assert signatures.lacking(granted)
    assert not grants.use(granted.pk, granted.digest)


def test_a_key_that_came_after_the_question_says_nothing_to_it(acme, ask, ben, seal):
    approval = ask(signed=True)
    late = SecurityKey(ben)
    enrol(acme, ben, late)
    seal()
    assert signatures.options(approval, ben) == signatures.NO_KEY
    with pytest.raises(signatures.NotSigned):
        inbox.grant(approval, by=ben, seen=approval.digest, signed={})


def test_an_enrolment_that_was_written_into_the_database_is_none(acme, ask, ben, seal):
    """Everything but the desk's own signature can be made by who owns the database."""
    mallory = SecurityKey(ben, "of somebody else")
    facts = signatures._facts(acme, ben, mallory.row)
    event = desk_events.record(
        acme, EventType.SIGNING_KEY_ENROLLED, by=ben, part="gate",
        data={name: one for name, one in facts.items() if name != "workspace"}
        | {"desk": "amends signing key 1\n", "label": "x", "signature": {}},
    )  # fmt: skip
    SigningKey.objects.create(
        workspace=acme, person=ben, credential=facts["credential"], label="x", event=event
    )
    seal()
    approval = ask(signed=True)
    seal()
    assert signatures.options(approval, ben) == signatures.NO_KEY


def test_a_public_key_that_was_exchanged_in_an_old_enrolment_is_seen(asked, ben, blue, seal):
    """The head outside holds the old one."""
    other = SecurityKey(ben, "of somebody else")
    public, _ = signatures._public_key(signatures.credential_of(other.row))
    forge(
        "ledger_event",
        "data = jsonb_set(data::jsonb, '{public_key}', to_jsonb(%s::text))::json"
        if Event._meta.get_field("data").db_type(connection) == "json"
        else "data = jsonb_set(data, '{public_key}', to_jsonb(%s::text))",
        public,
    )
    assert signatures.options(asked, ben) in {signatures.NO_KEY, signatures.NOT_SEALED}


def test_nothing_counts_that_no_head_outside_covers(acme, asked, ben, settings, tmp_path):
    assert isinstance(signatures.options(asked, ben), dict)
    settings.AMENDS_HEADS_FOLDER = str(tmp_path / "another")
    assert signatures.options(asked, ben) == signatures.NOT_SEALED
    settings.AMENDS_HEADS_FOLDER = ""
    assert "outside the database" in signatures.options(asked, ben)


def test_what_a_key_signed_that_was_removed_is_not_used(granted, acme, ben, blue, rf):
    signatures._when_removed(user=ben, authenticator=blue.row)
    assert told(acme, "signing_key.removed")[0]["person"] == str(ben.pk)
    assert "none of your keys" in signatures.lacking(granted)
    assert not grants.use(granted.pk, granted.digest)
    SigningKey.objects.update(removed_at=None)  # written back, past the desk
    assert "none of your keys" in signatures.lacking(granted)


def test_a_key_gone_from_the_account_alone_does_not_count_either(granted, blue):
    blue.row.delete()
    assert not grants.use(granted.pk, granted.digest)


def test_a_counter_that_goes_back_is_a_copy_of_the_key(asked, ask, ben, blue, seal):
    other = ask(signed=True)
    seal()
    signed_yes(asked, ben, blue)
    blue.counter -= 1
    with pytest.raises(signatures.NotSigned, match="counter of the key went back"):
        signed_yes(other, ben, blue)
    assert other.decisions.count() == 0
    blue.counter += 1
    signed_yes(other, ben, blue)


def test_the_counter_counts_from_the_enrolment_on_in_whichever_workspace(
    acme, globex, ask, ben, seal
):
    """A copy that was made before the key was put on record signs nothing, either."""
    key = SecurityKey(ben)
    key.counter = 40
    enrol(acme, ben, key)
    teams.add(team(globex, "approvers", "view", "approve"), ben, by=None)
    seal()
    approval = ask(signed=True)
    seal()
    for stale in (0, 39, 40):
        key.counter = stale
        with pytest.raises(signatures.NotSigned, match="counter of the key went back"):
            signed_yes(approval, ben, key)
        key.counter = stale
        with pytest.raises(signatures.NotSigned, match="counter of the key went back"):
            enrol(globex, ben, key)
    key.counter = 41
    signed_yes(approval, ben, key)


def test_whoever_may_decide_in_any_way_puts_a_key_on_record_and_nobody_else(
    client, acme, ada, ben, cleo
):
    """A deputy, and whom the policy lets break the glass, have to sign as others do."""
    put_in_force(acme, ada, SIGNED | {"breakGlass": {"after": "15m"}})
    viewers = team(acme, "viewers", "view")
    dora, eve = person("dora", viewers), person("eve", viewers)
    term = delegations.Term(now() + timedelta(days=1), now() + timedelta(days=2))
    delegations.give(acme, by=ben, to=dora, team=None, term=term, reason="away")

    found = {}
    for one in (ada, ben, cleo, dora, eve):
        key = SecurityKey(one)
        client.force_login(one)
        session = client.session
        session["account_authentication_methods"] = [
            {"method": "password", "proved_at": now().timestamp()}
        ]
        session["account_authentication_methods_user"] = str(one.pk)
        session.save()
        offered = "Put it on record" in client.get("/w/acme/settings/signing-keys/").text
        answer = key.sign(signatures.enrolment_options(acme, one, key.row))
        url = f"/w/acme/settings/signing-keys/{key.row.pk}/"
        status = client.post(url, {"signature": json.dumps(answer)}).status_code
        found[one.name] = (offered, status)

    may = (True, 302)
    assert found == {"Ada": may, "Ben": may, "Cleo": may, "Dora": may, "Eve": (False, 403)}


@pytest.mark.parametrize(
    "how",
    [
        {"origin": "https://evil.example.com"},
        {"origin": "http://localhost:8001"},
        {"origin": "https://localhost.evil.example.com"},
        {"flags": FLAG.UP},
        {"flags": FLAG.UV},
    ],
)
def test_a_signature_from_elsewhere_or_without_its_person_is_refused(asked, ben, blue, how):
    with pytest.raises(signatures.NotSigned):
        signed_yes(asked, ben, blue, **how)
    assert not Decision.objects.exists()


def test_offline_too_a_signature_without_its_person_is_none(blue):
    """The desk would not have taken it; who owns the database may put it there."""
    challenge = hashlib.sha256(b"this yes").digest()
    key = offline.SigningKey.of(Event.objects.get(type=EventType.SIGNING_KEY_ENROLLED).data)

    def checked(flags):
        said = blue.sign({"challenge": websafe_encode(challenge)}, flags=flags)["response"]
        of_browser = (said[one] for one in ("authenticatorData", "clientDataJSON", "signature"))
        named = zip(offline.SIGNED_FIELDS, (key.credential, *of_browser), strict=True)
        return offline.check(dict(named), key, challenge)

    assert checked(FLAG.UP | FLAG.UV).origin == DESK
    for flags in (FLAG.UP, FLAG.UV):
        with pytest.raises(NotProven, match="did not verify its person"):
            checked(flags)


@pytest.mark.parametrize("answer", [[], "x", 7, {"response": []}, {"id": 1, "rawId": None}])
def test_what_is_no_answer_of_a_key_is_refused_in_words(asked, ben, answer):
    with pytest.raises(signatures.NotSigned, match="did not sign"):
        inbox.grant(asked, by=ben, seen=asked.digest, signed=answer)


@pytest.mark.parametrize("tail", [b"", b"\x1b", b"\x81" * 5_000, b"\x9f", b"\xff"])
def test_extensions_that_cannot_be_read_are_refused_in_words(asked, ben, blue, tail):
    answer = blue.sign(signatures.options(asked, ben))
    extended = blue.rp_id + bytes([0x85]) + bytes(4) + tail
    answer["response"]["authenticatorData"] = websafe_encode(extended)
    with pytest.raises(signatures.NotSigned, match="did not sign"):
        inbox.grant(asked, by=ben, seen=asked.digest, signed=answer)


def test_a_second_key_is_put_on_record_by_one_that_is(acme, ben, blue, seal):
    green = SecurityKey(ben, "green key")
    with pytest.raises(signatures.NotSigned):
        enrol(acme, ben, green)
    enrol(acme, ben, green, signer=blue)
    assert SigningKey.objects.filter(person=ben).count() == 2


def test_no_row_lets_a_key_of_hers_in_beside_his(acme, ben, blue, seal):
    """Who has the credentials of the desk's role, and with them Ben's log-in, puts a key of hers
    on record as his: with his own row said to be gone, with a row of one that never was enrolled,
    or with his key exchanged in the account."""
    hers, forged = SecurityKey(ben, "hers"), SecurityKey(ben, "forged")

    SigningKey.objects.update(removed_at=now())
    with pytest.raises(signatures.NotSigned):
        enrol(acme, ben, hers)
    SigningKey.objects.update(removed_at=None)

    facts = signatures._facts(acme, ben, forged.row)
    told = {name: one for name, one in facts.items() if name != "workspace"}
    event = desk_events.record(
        acme, EventType.SIGNING_KEY_ENROLLED, by=ben, part="gate", data=told | {"desk": "…"}
    )
    SigningKey.objects.create(
        workspace=acme, person=ben, credential=facts["credential"], label="his", event=event
    )
    with pytest.raises(signatures.NotSigned):
        enrol(acme, ben, hers, signer=forged)

    exchanged = SecurityKey(ben, blue.row.data["name"])  # of the same id, with another secret
    blue.row.delete()
    exchanged.counter = 99
    with pytest.raises(signatures.NotSigned):
        enrol(acme, ben, hers, signer=exchanged)
    assert SigningKey.objects.count() == 2


def test_where_the_server_names_first_keys_no_other_counts(acme, ask, ben, seal, settings, client):
    """Who owns the database sets Ben's password, logs in as Ben, and puts a key of theirs on
    record; then even Ben's own, put on record late, has a say and theirs has none."""
    hers, other, his, third = (SecurityKey(ben, one) for one in ("hers", "other", "his", "third"))
    of_his = signatures._facts(acme, ben, his.row)["public_key"]
    settings.AMENDS_SIGNING_KEYS = named = [signing_keys.fingerprint(str(ben.pk), of_his)]
    enrol(acme, ben, hers)
    seal()
    asked = ask(risk="high", signed=True)
    seal()
    assert "named by the server" in str(signatures.options(asked, ben))

    enrol(acme, ben, his)
    with pytest.raises(signatures.NotSigned):
        enrol(acme, ben, third, signer=hers)
    enrol(acme, ben, third, signer=his)
    settings.AMENDS_SIGNING_KEYS = []
    enrol(acme, ben, other, signer=hers)
    settings.AMENDS_SIGNING_KEYS = named
    later, last = ask(risk="high", signed=True), ask(risk="high", signed=True)
    seal()
    for nobody in (hers, other):
        with pytest.raises(signatures.NotSigned):
            signed_yes(later, ben, nobody)
    for question, key in ((later, his), (last, third)):
        signed_yes(question, ben, key)
        assert grants.use(question.pk, question.digest)
    client.force_login(ben)
    assert named[0] in client.get("/w/acme/settings/signing-keys/").content.decode()


def test_a_key_under_the_id_of_another_has_a_fingerprint_of_its_own(acme, ben, blue):
    copied = SecurityKey(ben, blue.row.data["name"])
    assert copied.id == blue.id
    prints = {
        signing_keys.fingerprint("4", signatures._facts(acme, ben, one.row)["public_key"])
        for one in (blue, copied)
    }
    assert len(prints) == 2


def test_anybody_checks_it_offline(granted, acme, ben):
    keys = logkeys.public_keys(acme)
    document = signatures.document(granted, granted.decisions.get())
    verified, said = offline.verify(json.dumps(document), keys)
    assert verified.leaf["actor"] == f"person:{ben.pk}"
    assert said
    assert said.origin == DESK

    event = document["event"]
    event["data"]["reason"] = "another"
    with pytest.raises(NotProven):
        offline.verify(json.dumps(document), keys)
    event["data"]["reason"] = ""
    for part in ("enrolment", "question"):
        without = {name: one for name, one in document.items() if name != part}
        with pytest.raises(NotProven, match="has no"):
            offline.verify(json.dumps(without), keys)
    swapped = document | {"question": document["enrolment"], "enrolment": document["question"]}
    with pytest.raises(NotProven, match="these are not"):
        offline.verify(json.dumps(swapped), keys)


def test_offline_a_key_that_came_after_the_question_proves_nothing(granted, acme, ask, ben, seal):
    """The document that somebody makes who has all rows: the question is another, earlier one."""
    document = signatures.document(granted, granted.decisions.get())
    late = document | {"enrolment": document["enrolment"], "question": document["enrolment"]}
    with pytest.raises(NotProven):
        offline.verify(json.dumps(late), logkeys.public_keys(acme))


def test_the_policy_names_the_risk_and_the_server_may_name_a_lower_one(acme, ada, settings, client):
    client.force_login(ada)
    there = "/w/acme/settings/signing-keys/"
    assert "Nobody needs one before the policy asks" in client.get(there).content.decode()
    put_in_force(acme, ada, SIGNED)
    assert "without a key on record nobody can give it" in client.get(there).content.decode()
    version = versions.active_version(acme) if hasattr(versions, "active_version") else None
    assert version is None or version.document
    settings.AMENDS_URL = "http://192.0.2.7:8000"
    with pytest.raises(Invalid, match="host name"):
        versions.save(acme, json.dumps(SIGNED | {"selfApproval": False}), by=ada)
    assert "host name" in signing_keys.unavailable()


@pytest.mark.django_db(transaction=True)
def test_at_the_gate_a_call_goes_on_only_with_what_was_signed(acme, ada, ben, key):
    """The policy says so anew at each `begin`, whatever the row of the approval says."""
    put_in_force(acme, ada, SIGNED)
    trip = Trip(key)
    blue = SecurityKey(ben)
    enrol(acme, ben, blue)
    sealer.seal(acme)
    assert ask_for(trip).json()["answer"] == "wait"
    sealer.seal(acme)
    first = waiting()
    assert first.signed

    Decision.objects.create(approval=first, person=ben, granted=True, seen_digest=first.digest)
    Approval.objects.update(was="waiting", state="granted", signed=False)
    assert ask_for(trip, attempt="a2").json()["answer"] == "wait"
    first.refresh_from_db()
    assert first.state == "withdrawn"
    sealer.seal(acme)
    second = waiting()
    signed_yes(second, ben, blue)
    assert ask_for(trip, attempt="a3").json()["answer"] == "proceed"
    assert ask_for(trip, attempt="a3").json()["answer"] == "proceed"
