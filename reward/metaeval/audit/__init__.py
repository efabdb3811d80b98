"""Whether a metric can be cheated: attacks on captions, and how often the attacked caption wins."""
