"""What a trainer's log shows of what rewards give to `log_metric`."""

from collections import defaultdict

__all__ = ["TrainerLog"]


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
