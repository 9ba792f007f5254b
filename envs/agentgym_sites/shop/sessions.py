"""Separate login sessions for shop and dashboard, so that one browser can be logged in to both."""

from django.conf import settings
from django.contrib.sessions.middleware import SessionMiddleware

DASHBOARD = "/dashboard/"
SHOP_COOKIE = "shop_session"
DASHBOARD_COOKIE = "shop_admin_session"


def cookie_name(path: str) -> str:
    """Returns the name of the session cookie for a path."""
    return DASHBOARD_COOKIE if path.startswith(DASHBOARD) else SHOP_COOKIE


class TwoSessions(SessionMiddleware):
    """Session middleware with one cookie for the dashboard and another cookie for all other pages."""

    def process_request(self, request):
        """Opens the session of the cookie that is used for this address."""
        request.session = self.SessionStore(request.COOKIES.get(cookie_name(request.path)))

    def process_response(self, request, response):
        """Saves the session in the cookie that is used for this address."""
        response = super().process_response(request, response)
        morsel = response.cookies.pop(settings.SESSION_COOKIE_NAME, None)
        if morsel is not None:
            response.set_cookie(
                cookie_name(request.path), morsel.value, httponly=True, samesite="Lax"
            )
        return response
