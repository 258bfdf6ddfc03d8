"""How a connector says no. Import them from `connectors.contract`."""


class Refused(Exception):
    """We stopped because it is certain that nothing happened, and nothing will.

    Raise it for arguments that cannot be sent, and for an answer that the outside system documents
    as a refusal. It is the only way to the outcome `no_effect`, so never raise it for a time-out, a
    lost connection or a 5xx. The message is shown to people: one sentence, no credentials.
    """


class CannotRead(Exception):
    """We stopped because the target could not be read. Nothing is known of it; ask again later."""


class CannotRestore(CannotRead):
    """We stopped because what was recorded cannot be given back as it was, and never will.

    Raise it where the record may mean more than one value, or where the target cannot take what it
    says. The message is shown to people: one sentence that says what, and why.
    """
