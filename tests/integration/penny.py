"""The coin under another name: a second environment for a run that has several."""

import dataclasses

import coin


def make_kind():
    return coin.make_kind(dataclasses.replace(coin.SPEC, name="penny"))
