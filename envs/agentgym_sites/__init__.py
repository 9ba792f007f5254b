"""Embedded web sites: real applications with seed data on this machine, with one database per
episode.
"""
