"""A small open_clip model with CLIP's own vocabulary, as a folder."""

import json


def small_clip(folder):
    """Writes `open_clip_config.json` and weights into a folder, which is made if absent."""
    import open_clip
    import torch
    from safetensors.torch import save_file

    tower = {"width": 16, "layers": 1}
    model_cfg = {
        "embed_dim": 8,
        "vision_cfg": {"image_size": 32, "patch_size": 16, "head_width": 8, "mlp_ratio": 4.0, **tower},
        "text_cfg": {"context_length": 20, "vocab_size": 49408, "heads": 2, **tower},
    }
    preprocess = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"}
    folder.mkdir(exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model_cfg, "preprocess_cfg": preprocess}))
    with torch.random.fork_rng():
        torch.manual_seed(1)  # with some weights a caption has no neighbour in any band of similarity
        weights = open_clip.CLIP(**model_cfg).state_dict()
    save_file(weights, folder / "open_clip_model.safetensors")
    return folder
