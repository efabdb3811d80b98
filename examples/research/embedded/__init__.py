"""Scripts that make the embedded checkpoints from nothing but the synthetic scenes; see make.py for the order."""
