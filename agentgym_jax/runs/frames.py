"""Tables as pandas DataFrames; pandas is an optional package (extra `[notebook]`)."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_envs.base import extras


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Returns a pandas DataFrame with one row for each mapping.

    Raises:
      ImportError: pandas is not installed; the message has the command that installs it.
    """
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise ImportError(
            f"a DataFrame needs the package pandas, which is not installed: "
            f"{extras.install('notebook')}"
        ) from error
    return pandas.DataFrame(rows)
