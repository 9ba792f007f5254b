"""Django settings of the shop. $SHOP_PREPARED is the folder of the prepared site."""

import os
import pathlib

from oscar import defaults
from oscar.defaults import *  # noqa: F403

from agentgym_sites.django_settings import *  # noqa: F403

HERE = pathlib.Path(__file__).parent
PREPARED = pathlib.Path(os.environ["SHOP_PREPARED"])

# The server listens only on loopback, and browsers use several host names for it.
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "agentgym_sites.shop.urls"
SITE_ID = 1
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.sites",
    "django.contrib.flatpages",
    "oscar.config.Shop",
    "oscar.apps.analytics.apps.AnalyticsConfig",
    "oscar.apps.checkout.apps.CheckoutConfig",
    "oscar.apps.address.apps.AddressConfig",
    "oscar.apps.shipping.apps.ShippingConfig",
    "oscar.apps.catalogue.apps.CatalogueConfig",
    "oscar.apps.catalogue.reviews.apps.CatalogueReviewsConfig",
    "oscar.apps.communication.apps.CommunicationConfig",
    "oscar.apps.partner.apps.PartnerConfig",
    "oscar.apps.basket.apps.BasketConfig",
    "oscar.apps.payment.apps.PaymentConfig",
    "oscar.apps.offer.apps.OfferConfig",
    "oscar.apps.order.apps.OrderConfig",
    "oscar.apps.customer.apps.CustomerConfig",
    "oscar.apps.search.apps.SearchConfig",
    "oscar.apps.voucher.apps.VoucherConfig",
    "oscar.apps.wishlists.apps.WishlistsConfig",
    "oscar.apps.dashboard.apps.DashboardConfig",
    "oscar.apps.dashboard.reports.apps.ReportsDashboardConfig",
    "oscar.apps.dashboard.users.apps.UsersDashboardConfig",
    "oscar.apps.dashboard.orders.apps.OrdersDashboardConfig",
    "oscar.apps.dashboard.catalogue.apps.CatalogueDashboardConfig",
    "oscar.apps.dashboard.offers.apps.OffersDashboardConfig",
    "oscar.apps.dashboard.partners.apps.PartnersDashboardConfig",
    "oscar.apps.dashboard.pages.apps.PagesDashboardConfig",
    "oscar.apps.dashboard.ranges.apps.RangesDashboardConfig",
    "oscar.apps.dashboard.reviews.apps.ReviewsDashboardConfig",
    "oscar.apps.dashboard.vouchers.apps.VouchersDashboardConfig",
    "oscar.apps.dashboard.communications.apps.CommunicationsDashboardConfig",
    "oscar.apps.dashboard.shipping.apps.ShippingDashboardConfig",
    "widget_tweaks",
    "haystack",
    "treebeard",
    "django_tables2",
]
MIDDLEWARE = [
    "agentgym_sites.icons.IconLabels",
    "agentgym_sites.shop.sessions.TwoSessions",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.common.CommonMiddleware",
    "oscar.apps.basket.middleware.BasketMiddleware",
    "django.contrib.flatpages.middleware.FlatpageFallbackMiddleware",
]
AUTHENTICATION_BACKENDS = (
    "oscar.apps.customer.auth_backends.EmailBackend",
    "django.contrib.auth.backends.ModelBackend",
)
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [HERE / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "oscar.apps.search.context_processors.search_form",
                "oscar.apps.checkout.context_processors.checkout",
                "oscar.apps.communication.notifications.context_processors.notifications",
                "oscar.core.context_processors.metadata",
            ]
        },
    }
]

CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
CSRF_COOKIE_NAME = "shop_csrf"
STORAGES = {
    "default": {"BACKEND": "agentgym_sites.shop.images.ReadOnlyImages"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
MEDIA_ROOT = PREPARED / "media"
MEDIA_URL = "/static/media/"  # pictures never change, so they are served like static files
STATICFILES_DIRS = [("media", MEDIA_ROOT)]


class _NoMigrations:
    """Creates tables directly from the models, because oscar's migrations take 10 s."""

    def __contains__(self, app):
        return True

    def __getitem__(self, app):
        return None


MIGRATION_MODULES = _NoMigrations()

HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "agentgym_sites.shop.search.DatabaseEngine"}}

OSCAR_SHOP_NAME = "Northgate Market"
OSCAR_SHOP_TAGLINE = "Things that last"
OSCAR_DEFAULT_CURRENCY = "USD"
OSCAR_THUMBNAILER = "agentgym_sites.shop.images.WholeImage"
OSCAR_MISSING_IMAGE_URL = "none.svg"
OSCAR_INITIAL_ORDER_STATUS = "Pending"
OSCAR_INITIAL_LINE_STATUS = "Pending"
OSCAR_ORDER_STATUS_PIPELINE = {
    "Pending": ("Being processed", "Cancelled"),
    "Being processed": ("Complete", "Cancelled"),
    "Cancelled": (),
    "Complete": (),
}
# The editor of mail templates is removed for the reason given in urls.py.
OSCAR_DASHBOARD_NAVIGATION = [
    {**entry, "children": [c for c in entry["children"] if c["url_name"] != "dashboard:comms-list"]}
    if "children" in entry
    else entry
    for entry in defaults.OSCAR_DASHBOARD_NAVIGATION
]
OSCAR_EAGER_ALERTS = False
OSCAR_SEND_REGISTRATION_EMAIL = False
OSCAR_COOKIES_DELETE_ON_LOGOUT: list[str] = []
