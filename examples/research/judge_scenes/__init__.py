"""A small judge of the scenes: the embedded captioner learns to answer FLEUR's and HarmonicEval's questions.

python -m examples.research.judge_scenes.train   # about a quarter of an hour on two cores

`capreward bench --benchmark scenes --metric fleur=runs/judge/fleur` says how well its scores agree with raters.
"""
