"""CapArena: a judge that says which of two captions is better, its battles, and the CapArena-Auto benchmark."""
