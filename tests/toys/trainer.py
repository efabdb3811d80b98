"""What TRL's trainers do with a reward: they call it, and log what it gives to `log_metric`."""

from collections import defaultdict

from PIL import Image

RED = Image.new("RGB", (4, 4), "red")


def call(reward, completions, **columns):
    """What a reward gives for completions, of a red image each unless `image=` says otherwise."""
    columns.setdefault("image", [RED] * len(completions))
    columns.setdefault("prompts", ["Describe."] * len(completions))
    return reward(completions=completions, completion_ids=None, **columns)


class TrainerLog:
    """Takes values as TRL's trainers do: the sum and the number of all values of a name, over all processes.

    Give one log to the rewards of several processes.
    """

    def __init__(self):
        self.values = defaultdict(list)

    def __call__(self, name, value):
        assert type(value) is float
        self.values[name].append(value)

    @property
    def means(self):
        return {name: sum(values) / len(values) for name, values in self.values.items()}
