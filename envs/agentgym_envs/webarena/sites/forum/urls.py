"""Addresses of the forum: all of Spirit's."""

import spirit.urls
from django.urls import include, path

urlpatterns = [path("", include(spirit.urls))]
