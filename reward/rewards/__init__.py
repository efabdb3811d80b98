"""Metrics behind the call that trainers make: from completions and columns to one number per caption."""
