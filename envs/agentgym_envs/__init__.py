"""Environment servers behind one HTTP protocol."""

__version__ = "0.1.0"
