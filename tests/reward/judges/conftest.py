"""A server on the loopback interface with a tiny model behind it."""

import pytest

from reward.judges import connection
from tests.toys.loopback_judge import loopback_judge
from tests.toys.toy_judges import strict_llava


@pytest.fixture(scope="session")
def model():
    """It answers with one digit from 1 to 5."""
    return strict_llava("12345")


@pytest.fixture
def server(model):
    with loopback_judge(*model) as running:
        yield running


@pytest.fixture(autouse=True)
def short_first_wait(monkeypatch):
    monkeypatch.setattr(connection, "_FIRST_WAIT", 0.02)
