from django.urls import path

from workspaces.client_packages import tarball, wheel
from workspaces.views import directory, entrance, keys, members

app_name = "workspaces"

HERE = "w/<slug:workspace>/"

urlpatterns = [
    path("", entrance.home, name="home"),
    path("setup/<str:token>/", entrance.set_up, name="set_up"),
    path("join/<str:token>/", entrance.join, name="join"),
    path("address/", entrance.address, name="address"),
    path(f"client/{wheel.name}", keys.client, {"package": wheel}, name="client_wheel"),
    path(f"client/{tarball.name}", keys.client, {"package": tarball}, name="client_tarball"),
    path(HERE, entrance.workspace_home, name="workspace"),
    path(HERE + "settings/", members.settings, name="settings"),
    path(HERE + "settings/members/", members.members, name="members"),
    path(HERE + "settings/members/invite/", members.invite, name="invite"),
    path(
        HERE + "settings/members/invitations/<int:pk>/withdraw/",
        members.withdraw_invitation,
        name="withdraw_invitation",
    ),
    path(HERE + "settings/delegations/", members.delegate, name="delegate"),
    path(
        HERE + "settings/delegations/<int:pk>/revoke/",
        members.revoke_delegation,
        name="revoke_delegation",
    ),
    path(HERE + "settings/teams/", members.make_team, name="make_team"),
    path(HERE + "settings/teams/<int:pk>/", members.change_team, name="change_team"),
    path(HERE + "settings/teams/<int:pk>/leave/", members.leave_team, name="leave_team"),
    path(
        HERE + "settings/teams/<int:pk>/people/",
        members.change_membership,
        name="change_membership",
    ),
    path(HERE + "settings/directory/", directory.overview, name="directory"),
    path(HERE + "settings/directory/tokens/", directory.make_token, name="directory_token"),
    path(
        HERE + "settings/directory/tokens/<int:pk>/revoke/",
        directory.revoke_token,
        name="revoke_directory_token",
    ),
    path(HERE + "settings/directory/teams/", directory.hand_over, name="hand_over_team"),
    path(
        HERE + "settings/directory/people/<int:pk>/let-back-in/",
        directory.let_back_in,
        name="let_back_in",
    ),
    path(
        HERE + "settings/directory/people/let-back-in/",
        directory.let_all_back_in,
        name="let_all_back_in",
    ),
    path(HERE + "settings/keys/", keys.list_keys, name="keys"),
    path(HERE + "settings/keys/new/", keys.make_key, name="make_key"),
    path(HERE + "settings/keys/<int:pk>/revoke/", keys.revoke_key, name="revoke_key"),
    path(HERE + "settings/agents/", keys.make_agent, name="make_agent"),
    path(HERE + "settings/tokens/", keys.make_token, name="make_token"),
    path(HERE + "settings/tokens/<int:pk>/revoke/", keys.revoke_token, name="revoke_token"),
]
