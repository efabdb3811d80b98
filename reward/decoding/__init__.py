"""Choosing among candidate captions by their rewards, whatever framework wrote them."""
