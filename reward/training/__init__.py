"""Training of metrics on human judgments: one loop on transformers.Trainer; metrics plug in network and collator."""
