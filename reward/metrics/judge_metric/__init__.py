"""Metrics that ask any judge in words: judge, rubric, questions, claims, and the baselines CLAIR and VQAScore.

Each is a row below and a YAML file of its name beside this one, which says what is asked and how the answer is read.
"""

from __future__ import annotations

from reward.metrics.base import QWEN3_VL_4B, QWEN_VL_7B, MetricSpec

__all__ = ["CLAIMS", "CLAIR", "JUDGE", "QUESTIONS", "RUBRIC", "SPECS", "VQASCORE"]

_PLACE = "reward.metrics.judge_metric.scorer"
_BLIND = "what its judge misses"

JUDGE = MetricSpec(
    name="judge",
    scorer=f"{_PLACE}:JudgeScorer",
    sources="judge",
    aspects=("grade",),
    suits="short, long",
    blind_to=f"{_BLIND}, and what its prompt does not ask",
    checkpoints=(QWEN3_VL_4B, QWEN_VL_7B),
    paper="A grade by any vision-language model, in your words or ours",
)
RUBRIC = MetricSpec(
    name="rubric",
    scorer=f"{_PLACE}:RubricScorer",
    sources="judge",
    aspects=("met",),  # not `rubric`, as the column may be called
    columns=("rubric",),
    suits="short, long",
    blind_to=f"{_BLIND}, and what the criteria of the row leave out",
    checkpoints=(QWEN3_VL_4B, QWEN_VL_7B),
    citation={
        "author": "Gunjal, Anisha and Wang, Anthony and Lau, Elaine and Nath, Vaskar and He, Yunzhong and others",
        "title": "Rubrics as Rewards: Reinforcement Learning Beyond Verifiable Domains",
        "eprint": "2507.17746",
        "archivePrefix": "arXiv",
        "year": "2025",
    },
    paper="Rubrics as Rewards: Reinforcement Learning Beyond Verifiable Domains (2025)",
)
QUESTIONS = MetricSpec(
    name="questions",
    scorer=f"{_PLACE}:QuestionsScorer",
    sources="judge",
    aspects=("answered",),
    columns=("questions",),
    needs_image=False,
    suits="long",
    blind_to="the image; what the questions of the row leave out; style",
    checkpoints=(QWEN3_VL_4B, QWEN_VL_7B),
    citation={
        "author": "Xing, Long and others",
        "title": "{CapRL}: Stimulating Dense Image Caption Capabilities via Reinforcement Learning",
        "eprint": "2509.22647",
        "archivePrefix": "arXiv",
        "year": "2025",
    },
    paper="CapRL: Stimulating Dense Image Caption Capabilities via Reinforcement Learning (2025)",
)
CLAIMS = MetricSpec(
    name="claims",
    scorer="reward.metrics.judge_metric.claims:ClaimsScorer",
    sources="judge",
    aspects=("precision", "coverage"),
    aliases={"prec": "precision", "cov": "coverage"},
    needs_references=True,
    texts=("wrong_claims", "missing_facts"),
    suits="short, long",
    blind_to=f"{_BLIND}; grammar; sentences that are true of any image, or said twice in other words",
    checkpoints=(QWEN3_VL_4B, QWEN_VL_7B),
    citation={
        "author": "Jing, Liqiang and Li, Ruosen and Chen, Yunmo and Du, Xinya",
        "title": "{FaithScore}: Fine-grained Evaluations of Hallucinations in Large Vision-Language Models",
        "booktitle": "Findings of EMNLP",
        "year": "2024",
    },
    paper="FaithScore: Fine-grained Evaluations of Hallucinations in Large Vision-Language Models (2024)",
)
CLAIR = MetricSpec(
    name="clair",
    scorer=f"{_PLACE}:ClairScorer",
    sources="judge",
    aspects=("clair",),
    needs_image=False,
    needs_references=True,
    suits="short",
    blind_to=f"the image; {_BLIND}",
    checkpoints=(QWEN3_VL_4B, QWEN_VL_7B),
    citation={
        "author": "Chan, David M. and Petryk, Suzanne and Gonzalez, Joseph E. and Darrell, Trevor and Canny, John",
        "title": "{CLAIR}: Evaluating Image Captions with Large Language Models",
        "booktitle": "Proceedings of EMNLP",
        "year": "2023",
    },
    paper="CLAIR: Evaluating Image Captions with Large Language Models (2023)",
)
VQASCORE = MetricSpec(
    name="vqascore",
    scorer=f"{_PLACE}:VqaScorer",
    sources="judge",
    aspects=("vqascore",),
    suits="short",
    blind_to=f"{_BLIND}; what the caption leaves out; grammar",
    checkpoints=(QWEN3_VL_4B, QWEN_VL_7B),
    citation={
        "author": "Lin, Zhiqiu and Pathak, Deepak and Li, Baiqi and Li, Jiayao and Xia, Xide and Neubig, Graham and "
        "Zhang, Pengchuan and Ramanan, Deva",
        "title": "Evaluating Text-to-Visual Generation with Image-to-Text Generation",
        "booktitle": "Proceedings of ECCV",
        "year": "2024",
    },
    paper="Evaluating Text-to-Visual Generation with Image-to-Text Generation (2024)",
)
SPECS = (JUDGE, RUBRIC, QUESTIONS, CLAIMS, CLAIR, VQASCORE)
