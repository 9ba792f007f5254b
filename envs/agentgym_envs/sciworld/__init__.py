"""ScienceWorld: experiments in a simulated house, as a text game (arXiv:2203.07540)."""
