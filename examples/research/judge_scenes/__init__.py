"""A small judge of the scenes: the embedded captioner learns to answer FLEUR's and HarmonicEval's questions.

python -m examples.research.judge_scenes.train     about a quarter of an hour on two cores
python -m examples.research.judge_scenes.evaluate  how well its scores agree with raters of held-out scenes
"""
