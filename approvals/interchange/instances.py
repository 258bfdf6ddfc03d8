"""Receivers of the Agent Approval Protocol: who registered to be woken, what they are told, and how
they change or go.

A receiver registers with an agent's key and is believed once it has given back a challenge that is
signed with the secret it named. From then on it hears of each request of that agent that was
decided: that it was, and not how, for who wants to know comes and asks. It is a signed webhook like
any other, which people see among the channels and may turn off; an agent cannot turn it on again.

No key makes another: the credential of an instance is the agent's own key, with which it registers.
"""

import hashlib
import json
import re
import uuid
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx
from django.db import transaction

from connectors import channels
from connectors.channels import BadChannel, Message
from connectors.models import Channel, ChannelKind, DeliveryState
from connectors.outbound import (
    AddressRefused,
    AnswerTooLarge,
    Deadline,
    NotSent,
    Outbound,
    OutOfTime,
    headers_of,
)
from edge.asgi import refuse
from ledger.canonical import canonical
from ledger.parsed_events import Actor
from workspaces import clock, encryption, locks
from workspaces.models import Agent, APIKey, Secret

RESOLVED = "request.resolved"
RECORD = "aap instance "
NAMES_APART = uuid.UUID("9f3f5f0b-6d0c-4d3e-8a35-5f6f0a3c9e11")
"""Of ids that are made of workspace, agent and the receiver's address (RFC 9562, version 5)."""
VERIFY_SECONDS_MAX = 10.0
RECEIVERS_MAX = 10  # of one agent
RECORDS_MAX = 100  # of one agent, in the eight days that a submission is known
NAME_CHARACTERS_MAX = 200
URL_CHARACTERS_MAX = 2_000
SECRET = re.compile(r"whsec_[A-Za-z0-9+/]{43}=")
REMOVED = "removed"  # in a channel's settings: which part its agent took away
INSTANCE, DELIVERY = "instance", "delivery"
MEMBERS = {"type", "url", "registration_id", "signing_secret"}


class Receiver(NamedTuple):
    """Where somebody wants to be told, and what shows that it is they."""

    url: str
    registration: str
    secret: str


class Submission(NamedTuple):
    """What was submitted, checked; without a receiver the instance asks and is told nothing."""

    body: dict[str, Any]
    name: str
    receiver: Receiver | None

    @property
    def digest(self) -> str:
        return hashlib.sha256(canonical(self.body)).hexdigest()


def checked(body: Any) -> Submission:
    """The submission, if it is one; Refused in the words of the protocol else."""
    if not isinstance(body, dict) or body.keys() - {"instance_name", "delivery"}:
        raise refuse("invalid_submission", "It has instance_name and delivery, and no more.", 400)
    name, delivery = body.get("instance_name", ""), body.get("delivery")
    if "instance_name" in body and not (isinstance(name, str) and name.strip()):
        raise refuse("invalid_submission", "“instance_name” does not fit.", 400)
    if len(name) > NAME_CHARACTERS_MAX:
        raise refuse("invalid_submission", "“instance_name” is too long.", 400)
    if "delivery" not in body:
        return Submission(body, name, None)
    if not isinstance(delivery, dict) or not all(isinstance(one, str) for one in delivery.values()):
        raise refuse("invalid_submission", "“delivery” does not fit.", 400)
    if delivery.get("type") != "webhook":
        raise refuse("unsupported_delivery_type", "Delivery is by webhook.", 400)
    if delivery.keys() != MEMBERS:
        raise refuse("invalid_submission", "“delivery” lacks or has too much.", 400)
    return Submission(body, name, _receiver(delivery))


def _receiver(delivery: dict[str, str]) -> Receiver:
    try:
        uuid.UUID(delivery["registration_id"])
        url = httpx.URL(delivery["url"])
        is_url = url.scheme in {"https", "http"} and bool(url.host) and not url.userinfo
    except httpx.InvalidURL:
        is_url = False
    except ValueError as wrong:
        raise refuse("invalid_submission", "“registration_id” is no UUID.", 400) from wrong
    if not is_url or len(delivery["url"]) > URL_CHARACTERS_MAX:
        raise refuse("invalid_webhook_url", "The address is not one that can be told.", 400)
    if not SECRET.fullmatch(delivery["signing_secret"]):
        raise refuse("invalid_submission", "A signing secret is whsec_ and 32 bytes.", 400)
    b64decode(delivery["signing_secret"].removeprefix("whsec_"), validate=True)
    return Receiver(delivery["url"], delivery["registration_id"], delivery["signing_secret"])


def id_of(actor: Actor, key: str, submission: Submission) -> str:
    """Of one agent and address always the same: registering anew takes the former's place."""
    about = f"url {submission.receiver.url}" if submission.receiver else f"key {key}"
    return str(uuid.uuid5(NAMES_APART, f"{actor.workspace_id}/{actor.agent_id}/{about}"))


def verify(id_: str, receiver: Receiver) -> None:
    """Ask the receiver, over the network, for what only it can give back; Refused where it does
    not.
    """
    message_id, challenge = str(uuid.uuid4()), str(uuid.uuid4())
    told = {
        "id": message_id, "type": "webhook.verification", "registration_id": receiver.registration,
        "instance_id": id_, "created_at": stamp(clock.last_heard()), "challenge": challenge,
    }  # fmt: skip
    body = json.dumps(told).encode()
    headers = headers_of(receiver.secret, body, message_id=message_id)
    try:
        answer = Outbound(Deadline(VERIFY_SECONDS_MAX)).request(
            "POST", receiver.url, headers={"content-type": "application/json", **headers},
            content=body,
        )  # fmt: skip
        is_right = answer.status == httpx.codes.OK and answer.json() == {"challenge": challenge}
    except AddressRefused as refusal:
        raise refuse("invalid_webhook_url", str(refusal), 400) from refusal
    except (NotSent, OutOfTime, AnswerTooLarge, ValueError, httpx.HTTPError):
        is_right = False
    if not is_right:
        words = "The receiver did not give the challenge back."
        raise refuse("webhook_verification_failed", words, 422)


def is_known(actor: Actor, key: str, submission: Submission) -> bool:
    """Whether this submission is here already, under its key; Refused where another is."""
    clock.now()  # by which its receiver's challenge is signed, in a thread that asks it nothing
    kept = Secret.objects.filter(workspace=actor.workspace_id, name=_record(actor, key)).first()
    if kept is not None and kept.open()["submission"] != submission.digest:
        raise refuse("idempotency_conflict", "The key was sent with another submission.", 409)
    return kept is not None


def _record(actor: Actor, key: str) -> str:
    return f"{RECORD}{actor.agent_id} {hashlib.sha256(key.encode()).hexdigest()[:40]}"


@transaction.atomic
def register(actor: Actor, key: str, submission: Submission) -> bool:
    """Keep a receiver that has been verified, and the submission. Whether it is new."""
    agent = locks.locked(Agent.objects.filter(pk__in=[actor.agent_id])).get()
    if is_known(actor, key, submission):
        return False
    if submission.receiver:
        id_ = id_of(actor, key, submission)
        _channel(agent, id_, submission.receiver, submission.name)
    _note(actor, key, {"submission": submission.digest})
    return True


def _note(actor: Actor, key: str, what: dict[str, Any]) -> None:
    """Keep what was submitted under a key; Refused where an agent does so too often."""
    records = Secret.objects.filter(
        workspace=actor.workspace_id, name__startswith=f"{RECORD}{actor.agent_id} "
    )
    if records.count() >= RECORDS_MAX:
        raise refuse("too_many_instances", "Too many were registered in the last days.", 429)
    Secret.objects.create(
        workspace_id=actor.workspace_id, name=_record(actor, key),
        sealed=encryption.seal(json.dumps(what)),
    )  # fmt: skip


def _channel(agent: Agent, id_: str, receiver: Receiver, name: str) -> None:
    """The instance's channel with this receiver. Refused where people have turned it off."""
    mine = Channel.objects.filter(workspace=agent.workspace_id, settings__agent=agent.pk)
    secret = {"url": receiver.url, "secret": receiver.secret,
              "registration": receiver.registration, "name": name}  # fmt: skip
    channel = mine.filter(settings__instance=id_).select_related("secret").first()
    is_back = channel is not None and REMOVED in channel.settings
    if (channel is None or is_back) and mine.filter(disabled_at=None).count() >= RECEIVERS_MAX:
        raise refuse("too_many_instances", f"An agent has at most {RECEIVERS_MAX}.", 429)
    if channel is None:
        try:
            channels.create(
                agent.workspace, f"aap-{agent.name[:60]}-{id_[:8]}", ChannelKind.WEBHOOK, by=None,
                settings={"agent": agent.pk, "instance": id_, channels.SENDS: channels.FACTS},
                secret=secret, subjects=[RESOLVED],
            )  # fmt: skip
        except BadChannel as wrong:
            raise refuse("too_many_instances", str(wrong), 429) from wrong
        return
    if is_back:
        channel.settings.pop(REMOVED)
        channel.save(update_fields=["settings"])
        channels.enable(channel, by=None)
    elif channel.disabled_at is not None:
        words = "People have turned this receiver off, at Settings → Channels."
        raise refuse("receiver_turned_off", words, 403)
    _seal(channel, secret)


def _seal(channel: Channel, secret: dict[str, str]) -> None:
    former, name = channel.secret, f"channel {channel.name}"
    channel.secret = Secret.objects.seal(channel.workspace, name, secret)
    channel.save(update_fields=["secret"])
    if former is not None:
        former.delete()


def _of(actor: Actor, id_: str) -> Channel:
    """The agent's instance of this id, unless it took it away; Refused else."""
    mine = Channel.objects.filter(workspace=actor.workspace_id, settings__agent=actor.agent_id)
    channel = mine.filter(settings__instance=id_).select_related("secret", "workspace").first()
    if channel is None or channel.settings.get(REMOVED) == INSTANCE:
        raise refuse("not_found", "There is no such instance, or no longer.", 404)
    return channel


def shown(actor: Actor, id_: str) -> dict[str, Any]:
    """The instance as the protocol shows it: without its secret."""
    channel = _of(actor, id_)
    kept: dict[str, str] = channel.secret.open() if channel.secret else {}
    instance: dict[str, Any] = {"id": id_, "name": kept.get("name") or actor.name}
    if REMOVED not in channel.settings:
        told = {"type": "webhook", "url": kept["url"]}
        instance["delivery"] = told | {"registration_id": kept.get("registration", "")}
    return instance


@transaction.atomic
def change(
    actor: Actor, id_: str, key: str, submission: Submission, *, removes: bool
) -> dict[str, Any]:
    """Another name, or another receiver, which has been verified; `removes` takes the receiver
    away. The same submission again is answered as it was, and changes nothing.
    """
    agent = locks.locked(Agent.objects.filter(pk__in=[actor.agent_id])).get()
    channel = _of(actor, id_)
    if former := known_change(actor, id_, key, submission):
        return former
    kept: dict[str, str] = channel.secret.open() if channel.secret else {}
    name = submission.name or kept.get("name", "")
    if submission.receiver:
        _channel(agent, id_, submission.receiver, name)
    else:
        _seal(channel, kept | {"name": name})
    if removes:
        _take_away(channel, DELIVERY)
    answer = shown(actor, id_)
    _note(actor, f"{id_} {key}", {"submission": submission.digest, "answer": answer})
    return answer


def known_change(actor: Actor, id_: str, key: str, submission: Submission) -> dict[str, Any] | None:
    """What this change was answered with, if it was made; Refused where another was."""
    if not is_known(actor, f"{id_} {key}", submission):
        return None
    kept = Secret.objects.get(workspace=actor.workspace_id, name=_record(actor, f"{id_} {key}"))
    answer: dict[str, Any] = kept.open()["answer"]
    return answer


@transaction.atomic
def remove(actor: Actor, id_: str) -> None:
    """Nothing more is told to it. What people turned off stays turned off, and is not taken away:
    its agent could else bring it back.
    """
    locks.locked(Agent.objects.filter(pk__in=[actor.agent_id])).get()
    mine = Channel.objects.filter(workspace=actor.workspace_id, settings__agent=actor.agent_id)
    channel = mine.filter(settings__instance=id_).select_related("workspace").first()
    if channel is None:
        raise refuse("not_found", "There is no such instance.", 404)
    _take_away(channel, INSTANCE)


def _take_away(channel: Channel, part: str) -> None:
    if channel.disabled_at is not None and REMOVED not in channel.settings:
        return
    channel.settings[REMOVED] = part
    channel.save(update_fields=["settings"])
    channels.disable(channel, by=None)
    waiting = channel.deliveries.filter(state=DeliveryState.WAITING)
    waiting.update(state=DeliveryState.FAILED, last_error="Its receiver was taken away.")


def document(
    actor: Actor, key: str, submission: Submission, token: str, expires: datetime | None
) -> dict[str, Any]:
    """The protocol's answer: the instance, and the key with which it came as its credential."""
    instance: dict[str, Any] = {
        "id": id_of(actor, key, submission),
        "name": submission.name or actor.name,
    }
    if submission.receiver:
        told = {"type": "webhook", "url": submission.receiver.url}
        instance["delivery"] = told | {"registration_id": submission.receiver.registration}
    credential = {"token": token} | ({"expires_at": stamp(expires)} if expires else {})
    return {"instance": instance, "credential": credential}


def expiry(actor: Actor) -> datetime | None:
    """When the key that was shown ends."""
    key = APIKey.objects.filter(workspace=actor.workspace_id, prefix=actor.key_prefix).first()
    return key.expires_at if key else None


def tell(agent_id: int, request: str, decided_at: datetime) -> None:
    """Put on its way to each receiver of the agent that a request was decided, once; in the
    transaction of the decision.
    """
    mine = Channel.objects.filter(
        workspace__agents=agent_id, disabled_at=None, settings__agent=agent_id,
        settings__has_key="instance",
    )  # fmt: skip
    for channel in mine.select_related("workspace")[:RECEIVERS_MAX]:
        facts = {
            "id": str(uuid.uuid4()), "instance_id": channel.settings["instance"],
            "request_id": request, "created_at": stamp(decided_at),
        }  # fmt: skip
        message = Message("A request of the agent is decided", f"Request {request}", facts=facts)
        channels.tell(channel, RESOLVED, message, key=f"aap {request}")


def stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
