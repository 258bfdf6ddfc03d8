"""`POST /api/v1/approvals/{id}/answers`: an agent answers what a person asked back.

It says something and decides nothing: the words are shown as the agent's, untrusted.
"""

from typing import Any

import msgspec

from approvals import enquiries
from approvals.gate import slow_path
from approvals.models import Enquiry
from ledger.door import answer as send_answer
from ledger.door import body_of, refuse, speaker_of
from ledger.said import Speaker
from workspaces.hot import Receive, Scope, Send
from workspaces.moves import CannotMove

BODY_BYTES_MAX = 16 * 1024


class Reply(msgspec.Struct, forbid_unknown_fields=True):
    question: int
    answer: str


_replies = msgspec.json.Decoder(Reply)


async def reply(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer to one question of an approval of this agent; 409 where it is over."""
    speaker = await speaker_of(scope, "begin")
    pk = int(scope["path_params"]["approval"])
    try:
        said = _replies.decode(await body_of(scope, receive, BODY_BYTES_MAX))
    except msgspec.DecodeError as wrong:
        raise refuse("schema", "The body does not fit", 422, str(wrong)[:200]) from wrong
    await send_answer(send, 200, await slow_path.call(_reply, pk, speaker, said))


def _reply(approval: int, speaker: Speaker, said: Reply) -> dict[str, Any]:
    enquiry = (
        Enquiry.objects.select_related("approval__workspace", "approval__agent")
        .filter(
            pk=said.question,
            approval=approval,
            approval__workspace=speaker.workspace_id,
            approval__agent=speaker.agent_id,
        )
        .first()
    )
    if enquiry is None:
        raise refuse("not-found", "There is no such question to this agent", 404)
    try:
        enquiries.answer_as_agent(enquiry, said.answer)
    except CannotMove as over:
        raise refuse("over", "It cannot be answered any more", 409, str(over)) from over
    return {"question": str(enquiry.pk), "answered": True}
