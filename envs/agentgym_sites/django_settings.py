"""Settings that all Django sites share; their own settings import them."""

from agentgym_sites.django_server import database_settings

SECRET_KEY = "reachable from loopback only, with invented data"
DEBUG = False
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
# a fast hash is enough, because no data need protection
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# All data of an episode are in its database: there are no cache, mail or uploads, and messages are
# stored in sessions.
DATABASES = {"default": database_settings()}
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
SESSION_EXPIRE_AT_BROWSER_CLOSE = True
CSRF_COOKIE_AGE = None
FILE_UPLOAD_HANDLERS = ["agentgym_sites.uploads.RefuseUploads"]
STATIC_URL = "/static/"
HAYSTACK_SIGNAL_PROCESSOR = "haystack.signals.BaseSignalProcessor"

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English")]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"django.request": {"handlers": ["stderr"], "level": "ERROR", "propagate": False}},
}
