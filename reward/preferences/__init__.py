"""Preference data: scored candidates of images become pairs, labels or best captions to train on."""

from reward.preferences.selection import PreferenceRules, Preferences, choose_pairs

__all__ = ["PreferenceRules", "Preferences", "choose_pairs"]
