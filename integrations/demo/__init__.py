"""The demo: metrics against baselines, best-of-N, GRPO and offline scoring on held-out scenes, in one report."""
