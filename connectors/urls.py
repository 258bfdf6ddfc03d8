from django.urls import path, re_path

from connectors import channel_views, views

app_name = "connectors"

HERE = "w/<slug:workspace>/connectors/"
ONE = HERE + "<slug:name>/"
CHANNELS = "w/<slug:workspace>/channels/"

urlpatterns = [
    path(HERE, views.connection_list, name="connections"),
    path(HERE + "new/", views.make, name="make"),
    path(ONE, views.connection, name="connection"),
    path(ONE + "settings/", views.change_settings, name="change_settings"),
    re_path(
        r"^w/(?P<workspace>[-\w]+)/connectors/(?P<name>[-\w]+)"
        r"/credentials/(?P<purpose>observe|compensate)/$",
        views.set_credential,
        name="set_credential",
    ),
    path(ONE + "switch/", views.switch, name="switch"),
    path(ONE + "try/", views.attempt, name="try"),
    path(ONE + "rehearse/", views.rehearse, name="rehearse"),
    path(CHANNELS, channel_views.channel_list, name="channels"),
    path(CHANNELS + "new/", channel_views.make, name="channel_make"),
    path(CHANNELS + "<int:pk>/switch/", channel_views.switch, name="channel_switch"),
    path(CHANNELS + "<int:pk>/test/", channel_views.try_out, name="channel_test"),
]
