"""What the published figures and the shipped weights were made with; see docs/RESULTS.md."""
