"""Whether two trees of this library give the same numbers, see `__main__.py`."""
