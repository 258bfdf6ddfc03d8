"""What kinds of things are called in the reader's language."""

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from recovery.corrections.field_names import is_english, quoted
from recovery.run_facts.sentences import singular
from workspaces import formatting

# Kinds of things that people know by a word of their own.
KINDS_OF_THINGS = {
    "account": gettext_noop("account"),
    "address": gettext_noop("address"),
    "alarm": gettext_noop("alarm"),
    "album": gettext_noop("album"),
    "appointment": gettext_noop("appointment"),
    "article": gettext_noop("article"),
    "backup": gettext_noop("backup"),
    "bill": gettext_noop("bill"),
    "booking": gettext_noop("booking"),
    "calendar entry": gettext_noop("calendar entry"),
    "card": gettext_noop("card"),
    "cash account": gettext_noop("cash account"),
    "certificate": gettext_noop("certificate"),
    "charge": gettext_noop("charge"),
    "claim": gettext_noop("claim"),
    "comment": gettext_noop("comment"),
    "contact": gettext_noop("contact"),
    "contract": gettext_noop("contract"),
    "customer": gettext_noop("customer"),
    "delivery": gettext_noop("delivery"),
    "document": gettext_noop("document"),
    "e-mail": gettext_noop("e-mail"),
    "file": gettext_noop("file"),
    "flight": gettext_noop("flight"),
    "folder": gettext_noop("folder"),
    "form": gettext_noop("form"),
    "forwarding": gettext_noop("forwarding"),
    "hotel": gettext_noop("hotel"),
    "insurance": gettext_noop("insurance"),
    "invoice": gettext_noop("invoice"),
    "label": gettext_noop("label"),
    "letter": gettext_noop("letter"),
    "licence": gettext_noop("licence"),
    "limit order": gettext_noop("limit order"),
    "mail": gettext_noop("mail"),
    "meeting": gettext_noop("meeting"),
    "member": gettext_noop("member"),
    "message": gettext_noop("message"),
    "note": gettext_noop("note"),
    "order": gettext_noop("order"),
    "parcel": gettext_noop("parcel"),
    "password": gettext_noop("password"),
    "payment": gettext_noop("payment"),
    "permission": gettext_noop("permission"),
    "photo": gettext_noop("photo"),
    "policy": gettext_noop("policy"),
    "post": gettext_noop("post"),
    "prescription": gettext_noop("prescription"),
    "product": gettext_noop("product"),
    "profile": gettext_noop("profile"),
    "project": gettext_noop("project"),
    "refund": gettext_noop("refund"),
    "rental car": gettext_noop("rental car"),
    "reservation": gettext_noop("reservation"),
    "room": gettext_noop("room"),
    "savings plan": gettext_noop("savings plan"),
    "seat": gettext_noop("seat"),
    "share": gettext_noop("share"),
    "shipment": gettext_noop("shipment"),
    "standing order": gettext_noop("standing order"),
    "stay": gettext_noop("stay"),
    "subscription": gettext_noop("subscription"),
    "task": gettext_noop("task"),
    "ticket": gettext_noop("ticket"),
    "transfer": gettext_noop("transfer"),
    "trip": gettext_noop("trip"),
    "user": gettext_noop("user"),
    "voucher": gettext_noop("voucher"),
}


def kind_of(target_type: str) -> str:
    """`ticket`. Of a kind without a word of its own in the reader's language that of the last part
    of its name, or a neutral one, and beside it what the agent calls it: `Eintrag „cruise cabin“`.
    """
    word = singular(target_type) if formatting.is_identifier(target_type) else quoted(target_type)
    if word in KINDS_OF_THINGS:
        return _(KINDS_OF_THINGS[word])
    if is_english() or not word:
        return word
    known = KINDS_OF_THINGS.get(word.rpartition(" ")[2])
    return f"{_(known) if known else _('item')} {quoted(word)}"
