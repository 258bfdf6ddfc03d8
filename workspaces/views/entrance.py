"""The ways in: the first administrator, an invitation, and the way to one's workspaces."""

from allauth.account.internal.flows.email_verification import send_verification_email_to_address
from django.contrib import messages
from django.contrib.auth import login, logout
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from workspaces import clock, encryption, entrance, independence
from workspaces.access import workspaces_of
from workspaces.forms import OwnPasswordForm, PasswordForm, SetUpForm
from workspaces.models import Invitation, User
from workspaces.pages import Request

BACKEND = "django.contrib.auth.backends.ModelBackend"
INVITED = "invited"
"""In the session, sealed: the link by which somebody comes who is not logged in yet."""
NAMED = "named"
"""In the session: whom their company's log-in has named, when, and for which link, sealed."""
NAMED_SECONDS = 15 * 60


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Lead the person to the queue of the first workspace."""
    if not request.user.is_authenticated:
        if entrance.needs_setup():
            return render(request, "workspaces/unset.html")
        return redirect("account_login")
    first = workspaces_of(request.user).order_by("name").first()
    if first is None:
        return render(request, "workspaces/nowhere.html")
    return redirect(f"/w/{first.slug}/queue/")


def too_old(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Of a form without a token that holds: back to where it stands, with what was typed."""
    form = request.META.get("HTTP_REFERER", "").partition("#")[0]
    is_ours = url_has_allowed_host_and_scheme(form, {request.get_host()})
    is_ours = is_ours and "HX-Request" not in request.headers  # whose page is still there
    return render(request, "403_csrf.html", {"form_url": form if is_ours else ""}, status=403)


@never_cache
@require_http_methods(["GET", "POST"])
def set_up(request: HttpRequest, token: str) -> HttpResponse:
    """The one-time link of `manage.py setup_link`."""
    if entrance.standing_setup_link(token) is None:
        return render(request, "workspaces/link_over.html", status=410)
    form = SetUpForm(request.POST or None)
    if not form.is_valid():
        return render(request, "workspaces/set_up.html", {"form": form, "action": request.path})
    try:
        person, workspace = entrance.set_up(token, **form.cleaned_data)
    except entrance.LinkIsOver:
        return render(request, "workspaces/link_over.html", status=410)
    login(request, person, backend=BACKEND)
    messages.success(request, "This is your workspace. Connect an agent, then its runs appear.")
    return redirect("workspaces:keys", workspace=workspace.slug)


@never_cache
@require_http_methods(["GET", "POST"])
def join(request: HttpRequest, token: str) -> HttpResponse:
    """An invitation: who has an account logs in, who has none makes it here."""
    invitation = entrance.standing_invitation(token)
    if invitation is None:
        return render(request, "workspaces/link_over.html", status=410)
    if request.user.is_authenticated:
        return _join_as(request, request.user, invitation, token)
    if named := _named_for(request, invitation, token):
        return _choose(request, named, invitation, token)
    if User.objects.filter(email=invitation.email).exists():
        request.session[INVITED] = encryption.seal(token).decode()
        return redirect(f"/accounts/login/?next={request.path}")
    form = PasswordForm(request.POST or None, email=invitation.email, joins=invitation.workspace)
    if not form.is_valid():
        context = {"form": form, "action": request.path, **_invited(invitation)}
        return render(request, "workspaces/join.html", context)
    person = User.objects.create_user(
        invitation.email, form.cleaned_data["password"], name=form.cleaned_data["name"]
    )
    login(request, person, backend=BACKEND)
    _mail_proof(request, person)
    return _accept(request, person, token)


def _join_as(
    request: HttpRequest, person: User, invitation: Invitation, token: str
) -> HttpResponse:
    if person.email != invitation.email:
        return render(
            request, "workspaces/other_address.html", {"invitation": invitation}, status=409
        )
    posted = request.POST if request.method == "POST" else None
    is_asked = entrance.needs_password(person, invitation.workspace)
    form = OwnPasswordForm(posted, person=person) if is_asked else None
    if posted is None or (form and not form.is_valid()):
        context = {"known": True, "form": form, "action": request.path, **_invited(invitation)}
        return render(request, "workspaces/join.html", context)
    return _accept(request, person, token, form.cleaned_data["password"] if form else "")


def invited_with(request: HttpRequest) -> str:
    """The token of the link that was opened in this browser before; empty where none was."""
    return _opened(str(request.session.get(INVITED, "")))


def _opened(sealed: str) -> str:
    try:
        return encryption.open_sealed(sealed.encode())
    except encryption.CannotOpen:
        return ""


def choose_with(request: HttpRequest, person: User, link: str) -> HttpResponse:
    """To the page of the link, where whom their company's log-in has just named may choose a
    password for some minutes, and do nothing else: nobody is logged in by it.
    """
    sealed, at = encryption.seal(link).decode(), clock.database_time().timestamp()
    request.session[NAMED] = {"person": person.pk, "link": sealed, "at": at}
    return redirect(f"/join/{link}/")


def _named_for(request: HttpRequest, invitation: Invitation, token: str) -> User | None:
    """Whom a company's log-in has named a moment ago, with this very link open in this browser."""
    named = request.session.get(NAMED)
    if not named or not 0 <= clock.database_time().timestamp() - named["at"] <= NAMED_SECONDS:
        return None
    if _opened(named["link"]) != token:
        return None
    person = User.objects.filter(pk=named["person"], email=invitation.email, is_active=True).first()
    return person if person and entrance.needs_password(person, invitation.workspace) else None


def _choose(request: HttpRequest, person: User, invitation: Invitation, token: str) -> HttpResponse:
    """With the password alone they log in from here on, and with their second factor if they have
    one.
    """
    form = OwnPasswordForm(request.POST if request.method == "POST" else None, person=person)
    if not form.is_valid():
        context = {"known": True, "form": form, "action": request.path, **_invited(invitation)}
        return render(request, "workspaces/join.html", context)
    try:
        workspace = entrance.accept_with(token, by=person, password=form.cleaned_data["password"])
    except entrance.LinkIsOver:
        return render(request, "workspaces/link_over.html", status=410)
    request.session.flush()
    messages.success(request, "Your password is set. Log in with it.")
    return redirect(f"/w/{workspace.slug}/queue/")  # by way of the log-in


def _invited(invitation: Invitation) -> dict[str, object]:
    """What the page says of an invitation: by whom, and into which teams."""
    into = ", ".join(invitation.teams.order_by("name").values_list("name", flat=True))
    by = invitation.invited_by or "An administrator who has left"
    return {"invitation": invitation, "invited_by": by, "invited_into": into}


def _accept(request: HttpRequest, person: User, token: str, password: str = "") -> HttpResponse:
    """With a password, it is that by which they are logged in from here on."""
    try:
        if password:
            workspace = entrance.accept_with(token, by=person, password=password)
        else:
            workspace = entrance.accept(token, by=person)
    except entrance.LinkIsOver:
        return render(request, "workspaces/link_over.html", status=410)
    if password:
        logout(request)
        login(request, person, backend=BACKEND)
        messages.success(request, "Your password is set. From now on you log in with it.")
    return redirect(f"/w/{workspace.slug}/queue/")


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def address(request: Request) -> HttpResponse:
    """Prove one's address: a link goes to the address itself, and only whoever reads it has it."""
    person = request.user
    if request.method == "POST" and not independence.is_proven(person):
        _mail_proof(request, person)
        return redirect("workspaces:address")
    context = {"proven": independence.is_proven(person), "action": request.path}
    return render(request, "workspaces/address.html", context)


def _mail_proof(request: HttpRequest, person: User) -> None:
    """Have allauth mail its link, and say what became of that; it asks how often, too."""
    try:
        sent = send_verification_email_to_address(request, independence.address_of(person))
    except OSError:  # what smtplib raises is of it
        messages.error(
            request,
            f"The desk could not send mail to {person.email}, so nothing is proven yet. Whoever "
            "runs the server sets EMAIL_HOST, or records there: manage.py vouch WORKSPACE "
            f"{person.email} --address --because WHY",
        )
        return
    if not sent:
        messages.warning(request, "A link was mailed a moment ago; wait three minutes for another.")


@login_required
@require_GET
def workspace_home(_request: HttpRequest, workspace: str) -> HttpResponse:
    return redirect(f"/w/{workspace}/queue/")
