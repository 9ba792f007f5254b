"""An object store in memory in place of Google Cloud Storage."""

import contextlib
import importlib.util

import fsspec.config
from etils.epath import backend
from fsspec.implementations.memory import MemoryFileSystem


class Objects(MemoryFileSystem):
    """Objects by name; a folder exists if an object is in it."""

    protocol = "gs"
    cachable = False

    def __init__(self):
        super().__init__()
        self.store, self.pseudo_dirs = {}, [""]

    @classmethod
    def _strip_protocol(cls, path):
        return path.removeprefix("gs://").strip("/")

    def mkdir(self, path, create_parents=True, **kwargs):
        """Does nothing."""

    def makedirs(self, path, exist_ok=False):
        """Does nothing."""


@contextlib.contextmanager
def storing(monkeypatch):
    """Yields the object store that paths of the form gs://bucket/name then use."""
    objects = Objects()
    monkeypatch.setattr(backend.fsspec_backend, "_get_filesystem", lambda name: objects)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: name == "gcsfs" or find_spec(name)
    )
    monkeypatch.setattr(fsspec.config, "conf", {})
    yield objects
