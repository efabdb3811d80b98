"""One folder a metric; `spec.py` states its facts, `scorer.py` scores. See reward.registry for how they are found."""
