"""`capreward harden`: captions of a policy, perhaps trained against the metric with TRL, teach the metric."""
