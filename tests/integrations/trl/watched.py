"""A training with a monitor and planted measures, in one process or several."""

import numpy as np
from PIL import Image

from integrations.trl import RewardMonitor, load_policy
from tests.integrations.short_training import COLOURS, make_trainer, with_images
from tests.toys.toy_captioners import llava

PARTS, RISES = (0.5, 0.7, 0.7, 0.4, 0.2), (0.1, 0.2, 0.3, 0.4, 0.5)
EVALUATING = {"eval_strategy": "steps", "eval_steps": 1, "eval_on_start": True, "num_generations_eval": 1}


def words(completions, **_):
    return [float(len(completion[0]["content"].split())) for completion in completions]


class Planted:
    """A measure whose mean over the images is known at each step."""

    def __init__(self, means, name):
        self.means, self.__name__ = means, name

    def __call__(self, completions, image, trainer_state, **_):
        noise = [np.frombuffer(one.tobytes()[:8], np.uint8).mean() / 25500 for one in image]
        step = trainer_state.global_step
        return [self.means[min(step, 4)] + value * (1 + step) for value in noise]


def held_out(count=12, *, first=0):
    multipliers = range(7 + first, 7 + first + count)
    pixels = [(np.arange(3072).reshape(32, 32, 3) * number % 251).astype("uint8") for number in multipliers]
    return with_images(list(map(Image.fromarray, pixels)))


def trainer_of(folder, rewards, *classes, policy=None, images=12, evaluated=None, **options):
    """A trainer of four steps that evaluates after each, on so many images or on these data."""
    options = {"max_steps": 4, "learning_rate": 3e-2, "max_completion_length": 8, **EVALUATING, **options}
    data = with_images(COLOURS * 2)
    evaluated = held_out(images) if evaluated is None else evaluated
    return make_trainer(policy or llava(), rewards, data, folder, *classes, evaluated=evaluated, **options)


def watched(folder, second=None, *, rewards=None, on_parting="warn", **options):
    """Such a trainer and its monitor; by default the reward rises while the second measure falls."""
    trainer = trainer_of(folder, rewards or [Planted(RISES, "reward"), words], **options)
    monitor = RewardMonitor(trainer, second or Planted(PARTS, "truth"), on_parting=on_parting)
    trainer.add_callback(monitor)
    return trainer, monitor


def train_as_one_of_two(out):
    """A step of training with five held-out images, in one of two processes; the policy is beside `out`."""
    policy = load_policy(out.parent / "policy")
    # Of a larger batch the first process would have all images.
    trainer, _ = watched(out, images=5, policy=policy, max_steps=1, per_device_eval_batch_size=2)
    trainer.train()
    trainer.accelerator.end_training()
