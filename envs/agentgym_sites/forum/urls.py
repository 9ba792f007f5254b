"""URL patterns of the forum: all patterns of Spirit."""

import spirit.urls
from django.urls import include, path

urlpatterns = [path("", include(spirit.urls))]
