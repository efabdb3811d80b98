"""The demo: metrics against baselines, best-of-N, GRPO and offline scoring on held-out scenes, in one report.

It is no adapter, but it runs the adapters to TRL and `generate` together, and `reward` may not import those. It is
installed with the wheel because `capreward demo` is the first command that a new user runs.
"""
