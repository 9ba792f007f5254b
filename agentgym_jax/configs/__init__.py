"""The shipped configs under a name that exists in a checkout and in an installed wheel.

In a checkout their files are in the folder `configs` of the repository, where this package looks
for them. A wheel holds them in place of this file.
"""

import pathlib

__path__ = [str(pathlib.Path(__file__).parents[2] / "configs")]
