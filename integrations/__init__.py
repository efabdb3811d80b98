"""Adapters to the frameworks that call rewards; each folder is one framework, and holds no maths."""
