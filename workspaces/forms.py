"""Forms of the entrance and the settings. They check words; the verbs check rules."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, cast

from django import forms
from django.contrib.auth.password_validation import (
    password_validators_help_texts,
    validate_password,
)
from django.db.models import QuerySet
from django.forms.utils import flatatt
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import slugify

from workspaces import delegations, entrance, formatting, pages
from workspaces.access import colleagues, people_with
from workspaces.free_text import NOTE_CHARACTERS_MAX, InvalidInput, kept_text
from workspaces.lookalikes import skeleton
from workspaces.models import DELEGATION_DAYS_MAX, Agent, APIKey, Team, User, Workspace

CODENAMES = [
    (codename, f"{codename.replace('_', ' ')}: {words.removeprefix('Can ')}")
    for codename, words in Workspace._meta.permissions
]
KEY_DAYS_MAX = 730
SLUG_CHARACTERS_MAX = 48


def choice_of(form: forms.Form, name: str) -> forms.ChoiceField:
    """The field of a choice, to be given what this form offers."""
    return cast("forms.ChoiceField", form.fields[name])


def shown_in(form: forms.Form, name: str) -> str:
    """What stands in a field as the form is shown."""
    return str(form.data.get(form.add_prefix(name), form.initial.get(name, "")) or "")


def under_headings(
    form: forms.Form, headings: Mapping[str, Iterable[str]]
) -> list[tuple[str, list[Any], bool]]:
    """Each heading with its fields, and whether something stands in one."""
    return [
        (words, [form[name] for name in names],
         any(shown_in(form, name) or form.errors.get(name) for name in names))
        for words, names in headings.items()
    ]  # fmt: skip


def offer_too(field: forms.ChoiceField, now: str) -> None:
    """Offer what stands there already, if nothing else does: whoever mends it sees it."""
    choices: list[tuple[str, Any]] = list(cast("Any", field.choices))
    if now and now not in dict(choices):
        field.choices = [*choices, (now, f"{now}, which is not known")]


def row_of(form: forms.Form, name: str) -> "forms.ModelChoiceField[Any]":
    """The field of a row, to be given the rows among which it is chosen."""
    return cast("forms.ModelChoiceField[Any]", form.fields[name])


def without_hint(field: forms.Field, *, really: bool = True) -> None:
    """No word of “optional” beside a field that may be left: what it begins with is an answer, too,
    or it is needed once another one is given.
    """
    vars(field)["is_needed"] = really


class OneLine(forms.CharField):
    """A name: whatever stood between its words becomes one space, for it goes into mails, too; and
    it holds nothing that is not seen, for people are told apart by it.
    """

    default_error_messages: ClassVar[dict[str, Any]] = {
        "unseen": "It holds signs that nobody sees, or that change the order of others."
    }

    def to_python(self, value: Any) -> str:
        return " ".join((super().to_python(value) or "").split())

    def validate(self, value: str) -> None:
        super().validate(value)
        if not formatting.is_all_seen(value):
            raise forms.ValidationError(self.error_messages["unseen"], code="unseen")


def unmistakable(name: str, others: QuerySet[User]) -> str:
    """The name, unless a reader could take it for that of one of `others` (ValidationError)."""
    looks = skeleton(name)
    if any(skeleton(one) == looks for one in others.values_list("name", flat=True)):
        raise forms.ValidationError(
            "Somebody here is called so, or looks the same. Add what tells you apart."
        )
    return name


class ShortName(forms.SlugField):
    """A name that stands in addresses and documents; what it may hold is said where it is not."""

    default_error_messages: ClassVar[dict[str, Any]] = {
        "invalid": "Letters, digits, - and _ alone, with no space between them."
    }


class WrittenField(forms.CharField):
    """A line of a person's own: kept whole, or refused. The browser is not told to cut it."""

    def __init__(self, *, characters_max: int, **options: Any) -> None:
        self.characters_max = characters_max
        super().__init__(**options)

    def to_python(self, value: Any) -> str:
        try:
            return kept_text(super().to_python(value) or "", self.characters_max)
        except InvalidInput as wrong:
            raise forms.ValidationError(str(wrong)) from None


class OwnPasswordForm(forms.Form):
    """A password for whom until now a company's log-in alone has let in, checked as everywhere."""

    password = forms.CharField(
        label="Password",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def __init__(self, *args: Any, person: User, **options: Any) -> None:
        super().__init__(*args, **options)
        self.person = person
        self.fields["password"].help_text = " ".join(password_validators_help_texts())

    def clean_password(self) -> str:
        password: str = self.cleaned_data["password"]
        validate_password(password, self.person)
        return password


class PasswordForm(OwnPasswordForm):
    """A new account: name and password.

    `email` is the account's address where the form does not ask for it.
    """

    name = OneLine(label="Your name", max_length=120)
    field_order = ["name", "password"]

    def __init__(
        self, *args: Any, email: str = "", joins: Workspace | None = None, **options: Any
    ) -> None:
        super().__init__(*args, person=User(email=email), **options)
        self.joins = joins

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        return unmistakable(name, people_with("view", self.joins)) if self.joins else name

    def clean_password(self) -> str:
        said = self.cleaned_data
        self.person = User(name=said.get("name", ""), email=said.get("email", self.person.email))
        return super().clean_password()


class SetUpForm(PasswordForm):
    email = forms.EmailField(label="Your e-mail address", max_length=254)
    workspace_name = OneLine(
        label="Name of the workspace", max_length=120, help_text="Your company or desk."
    )
    slug = ShortName(
        label="Short name",
        max_length=SLUG_CHARACTERS_MAX,
        required=False,
        help_text="Stands in every address: /w/<short name>/. If left empty, made of the name.",
    )
    starter = forms.ChoiceField(
        label="Policy to start with",
        choices=list(entrance.STARTERS.items()),
        required=False,
        help_text="You can change it at any time under Policies.",
    )
    field_order = ["name", "email", "password", "workspace_name", "slug", "starter"]

    def clean_starter(self) -> str:
        return self.cleaned_data["starter"] or next(iter(entrance.STARTERS))

    def clean_email(self) -> str:
        email: str = self.cleaned_data["email"].lower()
        if User.objects.filter(email=email).exists():
            raise forms.ValidationError("There is an account with this address already.")
        return email

    def clean_slug(self) -> str:
        name = self.cleaned_data.get("workspace_name", "")
        slug: str = self.cleaned_data["slug"] or slugify(name)[:SLUG_CHARACTERS_MAX].strip("-_")
        if not slug and "workspace_name" in self.cleaned_data:
            raise forms.ValidationError("A short name of letters and digits is needed here.")
        if Workspace.objects.filter(slug=slug).exists():
            raise forms.ValidationError("There is a workspace with this short name already.")
        return slug


class TeamsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]  # not at run time
    """Teams of one workspace as check boxes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            queryset=Team.objects.none(), widget=forms.CheckboxSelectMultiple(), **options
        )


class InviteForm(forms.Form):
    email = forms.EmailField(
        label="E-mail address",
        max_length=254,
        help_text="Whoever another company’s log-in lets in so far chooses a password by the link."
        " It is not mailed then, for that company may read their mail: hand it over yourself.",
    )
    teams = TeamsField(label="Teams", help_text="What a team may is said beside it above.")

    def __init__(self, *args: Any, workspace: Workspace, **options: Any) -> None:
        super().__init__(*args, **options)
        row_of(self, "teams").queryset = workspace.teams.order_by("name")


class TeamForm(forms.Form):
    name = OneLine(label="Name of the team", max_length=80)
    may = forms.MultipleChoiceField(
        label="May", choices=CODENAMES, widget=forms.CheckboxSelectMultiple(), initial=["view"]
    )

    def __init__(self, *args: Any, workspace: Workspace, **options: Any) -> None:
        super().__init__(*args, **options)
        self.workspace = workspace

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"].strip()
        if self.workspace.teams.filter(name=name).exists():
            raise forms.ValidationError("There is a team of this name already.")
        return name


class AgentForm(forms.Form):
    name = ShortName(
        label="Name of the agent", max_length=80, help_text="As it will stand in the ledger."
    )
    description = WrittenField(
        label="What it does", characters_max=NOTE_CHARACTERS_MAX, required=False
    )

    def __init__(self, *args: Any, workspace: Workspace, **options: Any) -> None:
        super().__init__(*args, **options)
        self.workspace = workspace

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if Agent.objects.filter(workspace=self.workspace, name=name).exists():
            raise forms.ValidationError("There is an agent of this name already.")
        return name


class KeyForm(forms.Form):
    agent = forms.ModelChoiceField(
        label="Agent", queryset=Agent.objects.none(), empty_label="Choose an agent"
    )
    name = OneLine(
        label="Name of the key",
        max_length=120,
        help_text="Where it will be used. To change a key: make another, put it into use, then"
        " revoke the old one.",
    )
    scopes = forms.MultipleChoiceField(
        label="Scopes",
        choices=[
            ("ingest", "ingest: send events"),
            ("begin", "begin: ask before acting, wait for approvals"),
            ("read", "read: its runs, the policy and the ledger’s proofs"),
            ("audit", "audit: read the whole workspace’s log, for a SIEM; with nothing else"),
            ("import", "import: send runs that happened elsewhere, past the gate; not with begin"),
        ],
        initial=list(APIKey.OF_AGENTS),
        widget=forms.CheckboxSelectMultiple(),
    )
    trusted_runtime = forms.BooleanField(
        label="Trusted runtime",
        required=False,
        help_text="Only where no model can write the snapshots and classes that it sends: they are "
        "then believed, and restored without a person.",
    )
    days = forms.IntegerField(
        label="Days until it expires", required=False, min_value=1, max_value=KEY_DAYS_MAX
    )

    def __init__(self, *args: Any, workspace: Workspace, **options: Any) -> None:
        # Three forms of the page have a name: each label must find its own field.
        super().__init__(*args, **({"auto_id": "id_key_%s"} | options))
        row_of(self, "agent").queryset = workspace.agents.order_by("name")
        # The agent that was just added is what a key is made for.
        keyless = workspace.agents.filter(keys=None).order_by("-created_at").first()
        self.fields["agent"].initial = keyless

    def clean_scopes(self) -> list[str]:
        scopes: list[str] = self.cleaned_data["scopes"]
        if {"begin", "import"} <= set(scopes):
            raise forms.ValidationError(
                "One key does not both act and import: what is imported is not held against the"
                " gate. Make two."
            )
        if APIKey.ALONE in scopes and len(scopes) > 1:
            raise forms.ValidationError(
                "A key that reads the whole workspace’s log does nothing else. Make two."
            )
        return scopes


class MemberField(forms.ModelChoiceField):  # type: ignore[type-arg]  # not at run time
    """One of several people, who may be called alike."""

    def label_from_instance(self, obj: User) -> str:
        return formatting.with_address(obj)


class DelegationForm(forms.Form):
    """To whom a person hands their right to decide, and for how long, in their own time zone."""

    to = MemberField(label="To", queryset=User.objects.none(), empty_label="Choose a member")
    team = forms.ModelChoiceField(
        label="For",
        queryset=Team.objects.none(),
        required=False,
        empty_label="everything that I may decide",
        help_text="Or only what one team of yours is asked, of those that may decide.",
        error_messages={"invalid_choice": "Choose a team of yours that may decide on approvals."},
    )
    starts_at = forms.DateTimeField(
        label="From",
        required=False,
        widget=forms.DateTimeInput({"type": "datetime-local"}),
        help_text="If left empty, from now on.",
    )
    until = forms.DateTimeField(
        label="Until",
        widget=forms.DateTimeInput({"type": "datetime-local"}),
        help_text=f"{DELEGATION_DAYS_MAX} days at most.",
    )
    reason = WrittenField(label="Why", characters_max=NOTE_CHARACTERS_MAX)

    def __init__(self, *args: Any, workspace: Workspace, person: User, **options: Any) -> None:
        super().__init__(*args, **({"auto_id": "id_delegation_%s"} | options))
        others = people_with("view", workspace).exclude(pk=person.pk).order_by("name", "email")
        row_of(self, "to").queryset = others
        row_of(self, "team").queryset = delegations.deciding_teams(person, workspace)


class TokenForm(forms.Form):
    name = OneLine(label="Name of the token", max_length=120)
    days = forms.IntegerField(
        label="Days until it expires", required=False, min_value=1, max_value=KEY_DAYS_MAX
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **({"auto_id": "id_token_%s"} | options))


class Zones(forms.Select):
    """Hundreds of time zones, each said once; by a template for each they took longer than all else
    of the page.
    """

    def render(
        self,
        name: str,
        value: Any,
        attrs: dict[str, Any] | None = None,
        renderer: Any = None,
    ) -> SafeString:
        chosen = self.format_value(value)
        options = format_html_join(
            "",
            "<option{}>{}</option>",
            (
                (
                    flatatt(({"value": one} if one != label else {}) | {"selected": one in chosen}),
                    label,
                )
                for one, label in self.choices
            ),
        )
        given = self.build_attrs(self.attrs, {"name": name} | (attrs or {}))
        return format_html("<select{}>{}</select>", flatatt(given), options)


class WorkspaceForm(forms.ModelForm):  # type: ignore[type-arg]  # not at run time
    """The settings that stand in no policy: what is named here is shown, checked and kept."""

    name = OneLine(label="Name", max_length=120)
    timezone = forms.ChoiceField(
        label="Time zone",
        choices=[(zone, zone) for zone in sorted(pages.zone_names())],
        widget=Zones,
        help_text="Shown where a person’s own is not known, as on a correction without script.",
    )

    class Meta:
        model = Workspace
        fields: ClassVar = ["name", "timezone"]


class PersonForm(forms.ModelForm):  # type: ignore[type-arg]  # not at run time
    """What a person says of themselves, in every workspace."""

    name = OneLine(label="Your name", max_length=120)
    timezone = forms.ChoiceField(
        label="Your time zone",
        widget=Zones,
        required=False,
        help_text="All times on pages, and what you type, go by it. Behind each is UTC.",
    )
    without_hint(timezone)
    single_keys = forms.BooleanField(
        label="Single-key shortcuts", required=False, help_text="j, k, x, c … on lists and cases."
    )
    compact = forms.BooleanField(
        label="Compact lists", required=False, help_text="Smaller text, and more rows on a screen."
    )
    mail_approvals = forms.BooleanField(
        label="Write to me about approvals",
        required=False,
        help_text="When one waits for you, at half of its time, and how one ended that you asked "
        "for. A mail holds no arguments, and opening its link decides nothing.",
    )

    class Meta:
        model = User
        fields: ClassVar = ["name", "timezone", "single_keys", "compact", "mail_approvals"]

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        return name if name == self.instance.name else unmistakable(name, colleagues(self.instance))

    def __init__(self, *args: Any, browser: str, **options: Any) -> None:
        super().__init__(*args, **({"auto_id": "id_own_%s"} | options))
        as_it_says = f"As this browser says{f': {browser}' if browser else ''}"
        known = [(zone, zone) for zone in sorted(pages.zone_names())]
        cast(forms.ChoiceField, self.fields["timezone"]).choices = [("", as_it_says), *known]
