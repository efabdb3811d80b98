"""Adapters to the frameworks that call rewards; each folder is one framework, and holds no maths."""

import capreward  # noqa: F401  # refuses a reward.py beside the user's script, which would hide ours
