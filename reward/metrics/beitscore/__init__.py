"""BEiTScore: one score without references from a cross-encoder that reads image and caption together."""
