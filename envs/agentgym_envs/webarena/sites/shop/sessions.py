"""A customer in the shop and an administrator in the dashboard, in one browser at the same time."""

from django.conf import settings
from django.contrib.sessions.middleware import SessionMiddleware

DASHBOARD = "/dashboard/"
SHOP_COOKIE = "shop_session"
DASHBOARD_COOKIE = "shop_admin_session"


def cookie_name(path: str) -> str:
    """The cookie that holds the session of a page."""
    return DASHBOARD_COOKIE if path.startswith(DASHBOARD) else SHOP_COOKIE


class TwoSessions(SessionMiddleware):
    """Django's sessions with one cookie for the dashboard and one for everything else."""

    def process_request(self, request):
        """Opens the session that belongs to the address."""
        request.session = self.SessionStore(request.COOKIES.get(cookie_name(request.path)))

    def process_response(self, request, response):
        """Saves the session; its cookie gets the name that belongs to the address."""
        response = super().process_response(request, response)
        morsel = response.cookies.pop(settings.SESSION_COOKIE_NAME, None)
        if morsel is not None:
            response.set_cookie(
                cookie_name(request.path), morsel.value, httponly=True, samesite="Lax"
            )
        return response
