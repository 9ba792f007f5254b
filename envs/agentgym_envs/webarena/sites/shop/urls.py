"""Addresses of the shop: oscar's without the editor of mail templates.

Oscar renders what is written there as a Django template, whose tags and attributes reach into the
process of the site.
"""

from django.apps import apps
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import include, path


def _not_found(request: HttpRequest, rest: str = "") -> HttpResponse:
    raise Http404


urlpatterns = [
    path("dashboard/comms/", _not_found),
    path("dashboard/comms/<path:rest>", _not_found),
    path("", include(apps.get_app_config("oscar").urls[0])),
]
