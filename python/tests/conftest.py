"""The tests need a cluster at $SLUICE_URL and libsluice at $SLUICE_LIBRARY."""

import itertools
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import sluice  # noqa: E402

_numbers = itertools.count()


@pytest.fixture(scope="session")
def fs():
    with sluice.connect() as fs:
        yield fs


@pytest.fixture
def path():
    """A path that no other test has."""
    return f"/python-{os.getpid()}-{next(_numbers)}"
