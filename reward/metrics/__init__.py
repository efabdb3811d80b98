"""One folder a metric: its `__init__.py` states its facts, `scorer.py` scores. `reward.registry` finds them."""
