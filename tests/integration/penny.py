"""The coin environment under another name, for runs with two environments."""

import dataclasses

import coin


def make_served_environment():
    return coin.make_served_environment(dataclasses.replace(coin.SPEC, name="penny"))
