"""bert-score in its own environment, as a function for `worker_for.py`: precision, recall, F1."""

import os

import torch
from bert_score import BERTScorer

scorer = BERTScorer(os.environ["TINY_BERT"], num_layers=2, device="cpu")


def bertscore(samples):
    """Three numbers for each sample."""
    scores = scorer.score([each.caption for each in samples], [each.references for each in samples])
    return torch.stack(scores, dim=1)


if __name__ == "__main__":  # the package's own scores of the rows of a file
    import json
    import sys
    from pathlib import Path

    rows = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps([part.tolist() for part in scorer.score([row[0] for row in rows], [row[1] for row in rows])]))
