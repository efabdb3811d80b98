"""Polos (Wada et al. 2024) for `worker_for.py`, in the environment of capevalkit; see docs/SERVICE.md."""

# Nobody has run this yet.

from capevalkit.metrics.polos import load_model

model = load_model()


def polos(samples):
    """One number for each sample."""
    rows = [{"img": each.image, "mt": each.caption, "refs": each.references} for each in samples]
    return model.predict(rows, batch_size=8, cuda=True)[1]
