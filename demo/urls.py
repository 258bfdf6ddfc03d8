from django.urls import path

from demo import guide

app_name = "demo"

urlpatterns = [
    path("demo/enter/", guide.enter, name="enter"),
    path("demo/hide/", guide.hide, name="hide"),
]
