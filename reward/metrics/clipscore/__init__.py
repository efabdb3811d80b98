"""Baselines that compare CLIP's embeddings: CLIPScore, RefCLIPScore, Long-CLIPScore and PAC-S."""
