"""Garbage collections that begin while a text is parsed that is nested too deeply."""

import gc
import json

import pytest


def _descend(calls):
    return calls and _descend(calls - 1)


def _suspended():
    """Yields once; a collector that closes this generator needs some stack."""
    try:
        yield
    finally:
        _descend(30)


def _leave_garbage():
    cycle = [_suspended()]
    next(cycle[0])
    cycle.append(cycle)


def test_finalizers_without_stack_fail_no_test():
    before = gc.get_threshold()
    gc.collect()
    try:
        for allocations in range(500, 1000):  # some of them end at the limit of the stack
            gc.set_threshold(0)
            gc.collect(0)
            _leave_garbage()
            gc.set_threshold(allocations, 1_000_000)
            with pytest.raises(RecursionError):
                json.loads("[" * 100_000)
    finally:
        gc.set_threshold(*before)
