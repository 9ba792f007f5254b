"""The coin environment under another name, for runs with two environments."""

import coin


def make_served_environment():
    return coin.served("penny")
