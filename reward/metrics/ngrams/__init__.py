"""Baselines that count shared n-grams: BLEU, ROUGE-L, METEOR, CIDEr and SPICE, through the package pycocoevalcap."""
