"""Scores data sets that no machine holds, with Ray Data: `score_files`, behind `capreward score --engine ray`."""

from integrations.ray_data.run import score_files

__all__ = ["score_files"]
