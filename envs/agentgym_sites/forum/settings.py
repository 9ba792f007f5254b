"""Django settings of the forum."""

from agentgym_sites.django_settings import *  # noqa: F403

# The sites share the host 127.0.0.1 and its cookies, so every site needs a different cookie name.
SESSION_COOKIE = "forum_session"

# .test is for host names that the browser maps to this server
ALLOWED_HOSTS = ["127.0.0.1", "localhost", ".test"]
ROOT_URLCONF = "agentgym_sites.forum.urls"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "spirit.core",
    "spirit.admin",
    "spirit.search",
    "spirit.user",
    "spirit.user.admin",
    "spirit.user.auth",
    "spirit.category",
    "spirit.category.admin",
    "spirit.topic",
    "spirit.topic.admin",
    "spirit.topic.favorite",
    "spirit.topic.moderate",
    "spirit.topic.notification",
    "spirit.topic.private",
    "spirit.topic.unread",
    "spirit.comment",
    "spirit.comment.bookmark",
    "spirit.comment.flag",
    "spirit.comment.flag.admin",
    "spirit.comment.history",
    "spirit.comment.like",
    "spirit.comment.poll",
    "djconfig",
    "haystack",
]
MIDDLEWARE = [
    "agentgym_sites.icons.IconLabels",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "spirit.user.middleware.TimezoneMiddleware",
    "spirit.user.middleware.LastIPMiddleware",
    "spirit.user.middleware.LastSeenMiddleware",
    "spirit.user.middleware.ActiveUserMiddleware",
    "spirit.core.middleware.PrivateForumMiddleware",
    "djconfig.middleware.DjConfigMiddleware",
]
AUTHENTICATION_BACKENDS = [
    "spirit.user.auth.backends.UsernameAuthBackend",
    "spirit.user.auth.backends.EmailAuthBackend",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.contrib.auth.context_processors.auth",
                "django.template.context_processors.i18n",
                "django.template.context_processors.media",
                "django.template.context_processors.static",
                "django.template.context_processors.tz",
                "django.template.context_processors.request",
                "django.contrib.messages.context_processors.messages",
                "djconfig.context_processors.config",
            ]
        },
    }
]
LOGIN_URL = "spirit:user:auth:login"
LOGIN_REDIRECT_URL = "spirit:user:update"
LOGOUT_REDIRECT_URL = "spirit:index"

CACHES = {
    name: {"BACKEND": "django.core.cache.backends.dummy.DummyCache", "TIMEOUT": None}
    for name in ("default", "st_rate_limit")
}
SESSION_COOKIE_NAME = SESSION_COOKIE
CSRF_COOKIE_NAME = "forum_csrf"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
MEDIA_URL = "/media/"

HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "agentgym_sites.forum.search.DatabaseEngine"}}

ST_SITE_URL = "http://127.0.0.1/"
ST_RATELIMIT_ENABLE = False  # rate limits need a cache, and an agent is a single visitor
ST_UPLOAD_IMAGE_ENABLED = False
ST_UPLOAD_FILE_ENABLED = False
ST_ORDERED_CATEGORIES = True
