from django.urls import path, re_path

from connectors import views

app_name = "connectors"

HERE = "w/<slug:workspace>/connectors/"
ONE = HERE + "<slug:name>/"

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
]
