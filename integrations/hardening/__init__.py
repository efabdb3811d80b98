"""`capreward harden`: captions that a policy wrote are chosen, rated, and trained on, round by round."""
