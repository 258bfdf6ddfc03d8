"""What a password has to be, in our words: the rules are Django's, what they say is said here.

Each rule answers with one sentence that says what to do; what they say before stands in one line
under every field for a new password.
"""

from django.contrib.auth import password_validation as rules

LENGTH_MIN = 12


class LongEnough(rules.MinimumLengthValidator):
    def __init__(self, min_length: int = LENGTH_MIN) -> None:
        super().__init__(min_length)

    def get_error_message(self) -> str:
        return f"This password is too short: it takes at least {self.min_length} characters."

    def get_help_text(self) -> str:
        return f"At least {self.min_length} characters."


class NotTheirOwnName(rules.UserAttributeSimilarityValidator):
    """Name and address: whoever knows a person knows these."""

    def __init__(self) -> None:
        super().__init__(user_attributes=("name", "email"))

    def get_error_message(self) -> str:
        return "This password is nearly your name or your address: choose something else."

    def get_help_text(self) -> str:
        return "Not your name, not your address."


class NotWellKnown(rules.CommonPasswordValidator):
    def get_error_message(self) -> str:
        return "Many people have this password, so it is guessed first: choose another."

    def get_help_text(self) -> str:
        return "Not one that many people have."


class NotOnlyDigits(rules.NumericPasswordValidator):
    def get_error_message(self) -> str:
        return "This password has only digits: add letters or words."

    def get_help_text(self) -> str:
        return "Not only digits."
