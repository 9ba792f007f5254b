"""Figures and pages made from a run folder."""
