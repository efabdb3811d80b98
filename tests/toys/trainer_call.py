"""A call of a reward as TRL's trainers make it."""

from PIL import Image

RED = Image.new("RGB", (4, 4), "red")


def call(reward, completions, **columns):
    """What a reward gives for completions, of a red image each unless `image=` says otherwise."""
    columns.setdefault("image", [RED] * len(completions))
    prompts = ["Describe."] * len(completions)
    return reward(prompts=prompts, completions=completions, completion_ids=None, **columns)
