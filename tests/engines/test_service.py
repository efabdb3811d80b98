"""A reward service for two minutes, as `tests.engines.soak` runs it for an hour."""

import pytest

from tests.engines.soak import run

MOST_GROWTH = 0.25  # of memory: a short run sees little else than the first growth


@pytest.mark.timeout(520)
def test_soak(tmp_path):
    soak = run(2, 8, tmp_path)
    assert soak.wrong == soak.lost == []
    assert soak.kills >= 3
    first, *_, last = soak.memory_of_quarters()
    assert last / first - 1 < MOST_GROWTH
