"""One folder a metric; its `__init__.py` states its facts, `scorer.py` scores. See reward.registry for how they are found."""
