"""VELA: descriptiveness, relevance and fluency of long captions, from a language model and a CLIP."""
