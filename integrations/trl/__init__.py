"""Data sets of images and references in the form that TRL's trainers take."""

from integrations.trl.prompts import make_prompt_dataset

__all__ = ["make_prompt_dataset"]
