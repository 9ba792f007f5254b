"""Upload handler of Django sites that drops every file before it is written."""

from typing import Any

from django.core.files.uploadhandler import FileUploadHandler, SkipFile


class RefuseUploads(FileUploadHandler):
    """Upload handler that removes every file from a form.

    An episode therefore leaves no file outside its database.
    """

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        """Refuses a file before its first byte is read."""
        raise SkipFile

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Drops a chunk of a file."""

    def file_complete(self, file_size: int) -> None:
        """Returns None, because the upload is dropped."""
