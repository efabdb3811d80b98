"""Tiny vision-language models built from configs, LLaVA and Qwen-VL, which the toy captioners and toy judges share."""

import transformers as tf

QWEN_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
ENCODER = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def special_ids(tokens):
    return {f"{name}_token_id": getattr(tokens, f"{name}_token_id") for name in ("pad", "bos", "eos")}


def text_sizes(tokens, *, width=16, layers=1, positions=128):
    """A decoder's settings; its heads are 8 wide, and two of them share keys and values."""
    heads = {"num_attention_heads": width // 8, "num_key_value_heads": width // 16}
    sizes = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers, **heads}
    return {"vocab_size": len(tokens), "max_position_embeddings": positions, **sizes, **special_ids(tokens)}


def build_llava(tokens, text, template, *, patch_size):
    """`text`: the decoder's settings, a Llama unless `model_type` says otherwise. Images are 32 pixels a side."""
    size = {"height": 32, "width": 32}
    processor = tf.LlavaProcessor(
        tf.CLIPImageProcessor(size=size, crop_size=size, do_center_crop=False),
        tokens,
        patch_size=patch_size,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=template,
    )
    config = tf.LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **ENCODER, "image_size": 32, "patch_size": patch_size},
        text_config={"model_type": "llama", **text},
        image_token_index=tokens.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )
    return tf.LlavaForConditionalGeneration(config), processor


def build_qwen(model, config, tokens, text, **vision):
    """A model of the class `model` with its `config`; `vision` sets what differs between Qwen2-VL and Qwen2.5-VL."""
    start, end, image, video = tokens.convert_tokens_to_ids(list(QWEN_TOKENS))
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
    patches = {"patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 1}
    return model(
        config(
            text_config={**text, "rope_parameters": rope},
            vision_config={"depth": 1, "num_heads": 2, **patches, **vision},
            vision_start_token_id=start,
            vision_end_token_id=end,
            image_token_id=image,
            video_token_id=video,
        )
    )
