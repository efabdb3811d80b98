"""Tests against real engines, each in an environment of its own: `make test-engines`."""
