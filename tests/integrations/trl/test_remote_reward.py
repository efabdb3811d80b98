"""GRPO with a reward of a real service: the rewards are those in process."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from reward import MetricReward, RemoteReward
from tests.integrations.short_training import noise_images, train, with_images
from tests.loopback_service import loopback_service


class Recorded:
    """A reward function that keeps what it gave."""

    def __init__(self, reward: Any) -> None:
        self.reward, self.__name__ = reward, reward.__name__
        self.given: list[float | None] = []

    def __call__(self, **arguments: Any) -> list[float | None]:
        given = self.reward(**arguments)
        self.given += given
        return list(given)


def test_grpo_with_a_service(tmp_path: Path) -> None:
    with loopback_service("--metric", "vela", "--devices", "cpu") as service:
        reward = RemoteReward(service.url, "vela", {"rel": 1}, name="remote")
        remote = Recorded(pickle.loads(pickle.dumps(reward)))
        local = Recorded(MetricReward("vela", weights={"rel": 1}, name="local"))
        train([local, remote], with_images(noise_images()), tmp_path)
    assert len(remote.given) == 8
    assert remote.given == pytest.approx(local.given, abs=1e-6)
    assert remote.reward.failures["not scored by the metric"] == 0
