"""A server on the loopback interface with a tiny model behind it."""

import pytest

from reward.judges import connection
from tests.toys.loopback_judge import loopback_judge
from tests.toys.toy_judges import llava, without_blanks


@pytest.fixture(scope="session")
def model():
    """Some digits are among the likeliest 20 tokens, and some are not."""
    model, processor = llava()
    digits = processor.tokenizer.convert_tokens_to_ids([*"12345", *(f"Ġ{digit}" for digit in "12345")])
    model.lm_head.weight.data[digits] *= 4
    return without_blanks(model, processor)


@pytest.fixture
def server(model):
    with loopback_judge(*model) as running:
        yield running


@pytest.fixture(autouse=True)
def short_first_wait(monkeypatch):
    """Between tries to ask a server."""
    monkeypatch.setattr(connection, "_FIRST_WAIT", 0.02)
