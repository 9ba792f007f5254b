"""Uploads to Django sites: every file is dropped before it is written anywhere."""

from typing import Any

from django.core.files.uploadhandler import FileUploadHandler, SkipFile


class RefuseUploads(FileUploadHandler):
    """Leaves every file out of a form, so nothing of an episode is kept outside its database."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        """Refuses a file before its first byte is read."""
        raise SkipFile

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Drops a part of a file."""

    def file_complete(self, file_size: int) -> None:
        """Has no file to hand over."""
