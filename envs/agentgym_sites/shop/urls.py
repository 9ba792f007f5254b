"""URL patterns of the shop: all patterns of oscar except the editor of mail templates.

Oscar renders mail templates as Django templates. The tags in an edited template could access the
site's process.
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
