"""VELA (Matsuda et al. 2025), the authors' weights, for `worker_for.py`; see docs/SERVICE.md."""

# Nobody has run this yet.

import hashlib

import torch
from dataloader.vela_collate_fn import VELACollateFn
from vela import load_pretrained_model

device = "cuda" if torch.cuda.is_available() else "cpu"
model = load_pretrained_model(cfg_path="configs/config.yaml", device=device)
collate = VELACollateFn(model.cfg, device=device)


@torch.no_grad()
def vela(samples):
    """Descriptiveness, relevance and fluency of each sample."""
    aspects = []
    for mode in ("desc", "rel", "flu"):
        rows = [
            {
                "imgid": hashlib.sha1(each.image_bytes).hexdigest(),
                "img": each.image,
                "refs": each.references,
                "cand": each.caption,
                "mode": mode,
                "score": 0.0,
            }
            for each in samples
        ]
        batch, _ = collate(rows)
        aspects.append(model(**model.move_batch_to_device(batch, device)).float().clamp(0, 1))
    return torch.stack(aspects, dim=1)
