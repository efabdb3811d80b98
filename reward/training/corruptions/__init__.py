"""Wrong captions made on purpose, for training metrics: word level, rewrites by language models, retrieval."""
