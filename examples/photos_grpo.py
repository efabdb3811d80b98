"""GRPO of a vision-language model on your photos: the script of docs/PHOTOS.md, which explains every line.

    python -m examples.photos_grpo --images photos --output runs/photos
    python -m examples.photos_grpo --smoke --output runs/smoke        # the same lines here, in a minute, on a CPU

A folder of photos may hold metadata.jsonl with columns `file_name` and `references`; or name a .jsonl, .csv or .parquet
file with `image` and `references`. References are needed by some metrics only. Stopped, the same command goes on from
the last checkpoint.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset, Image, load_dataset
from peft import LoraConfig
from transformers import AutoProcessor
from transformers.utils import is_torch_bf16_gpu_available
from trl import GRPOConfig, GRPOTrainer

from examples import untrained
from integrations.trl import RewardMonitor, last_checkpoint, load_policy, make_prompt_dataset, readable_log
from reward import MetricReward
from reward.data.images import load_image

LORA = {"r": 16, "lora_alpha": 32, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}  # not the vision tower
FILES = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}


def main(argv: Sequence[str] | None = None) -> GRPOTrainer:
    options = parse(argv)
    dataset = read_photos(options.images, options.prompt, options.image_tokens * token_pixels(options.model))
    parts = dataset.train_test_split(test_size=min(200, max(2, len(dataset) // 10)), seed=0)
    reward = MetricReward(options.metric, options.source).load()  # what is wrong shows before the policy is loaded
    policy, processor = load_policy(options.model)
    trainer = GRPOTrainer(
        model=policy,
        processing_class=processor,
        reward_funcs=[reward],
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        peft_config=LoraConfig(**LORA, task_type="CAUSAL_LM"),
        args=GRPOConfig(
            output_dir=str(options.output),
            max_steps=options.steps,
            learning_rate=options.lr,
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=min(10, options.steps // 10),
            num_generations=8,
            per_device_train_batch_size=options.batch,
            gradient_accumulation_steps=options.captions // options.batch,
            max_completion_length=options.max_completion_length,
            scale_rewards="batch",  # a metric's scores of one photo may differ by noise only
            mask_truncated_completions=True,
            beta=0.0,
            use_vllm=options.use_vllm,
            vllm_mode="colocate",
            eval_strategy="steps",
            eval_steps=options.every,
            eval_on_start=True,
            num_generations_eval=1,
            per_device_eval_batch_size=options.batch,
            save_steps=options.every,
            save_total_limit=2,
            metric_for_best_model="eval_reward" if options.second == "none" else "eval_rewards/second/mean",
            logging_steps=1,
            report_to="none",
            use_cpu=options.smoke,
            bf16=not options.smoke,
        ),
    )
    if options.second != "none":
        second = MetricReward(options.second, options.second_source, name="second")
        trainer.add_callback(RewardMonitor(trainer, second))
    readable_log(trainer)
    trainer.train(resume_from_checkpoint=last_checkpoint(options.output))
    trainer.save_model(str(options.output / "model"))
    return trainer


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options; those of a trial are small and name untrained models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, help="folder of photos, or a .jsonl, .csv or .parquet file")
    parser.add_argument("--model", default="Qwen/Qwen3-VL-4B-Instruct", help="default: %(default)s")
    parser.add_argument("--prompt", default="Describe the image in detail.", help="default: %(default)s")
    parser.add_argument("--metric", default="longclipscore", help="the reward; default: %(default)s")
    parser.add_argument("--source", default="BeichenZhang/LongCLIP-L", help="its checkpoint; default: %(default)s")
    parser.add_argument("--second", default="fleur", help="metric that watches, or none; default: %(default)s")
    parser.add_argument("--second-source", default="Qwen/Qwen3-VL-4B-Instruct", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=300, help="default: %(default)s")
    parser.add_argument("--captions", type=int, default=64, help="captions a step, 8 a photo; default: %(default)s")
    parser.add_argument("--batch", type=int, default=8, help="of them at once in training; default: %(default)s")
    parser.add_argument("--lr", type=float, default=2e-5, help="learning rate; default: %(default)s")
    parser.add_argument("--max-completion-length", type=int, default=256, help="tokens; default: %(default)s")
    parser.add_argument("--image-tokens", type=int, default=512, help="most tokens of a photo; default: %(default)s")
    parser.add_argument("--every", type=int, default=25, help="steps between two looks and saves; default: %(default)s")
    parser.add_argument("--use-vllm", action="store_true", help="write captions with vLLM, on the same GPU")
    parser.add_argument("--smoke", action="store_true", help="a trial on a CPU: untrained models, photos of packages")
    parser.add_argument("--output", type=Path, required=True, help="folder for checkpoints, monitor and model")
    options = parser.parse_args(argv)
    if options.captions % options.batch or options.captions % 8:
        parser.error(f"--captions {options.captions} must be a multiple of 8 and of --batch {options.batch}")
    if options.smoke:
        made = options.output / "untrained"
        options.images = options.images or untrained.save_photos(made / "photos")
        options.model = untrained.make_qwen_vl(made / "qwen2_5_vl")
        options.metric, options.source = "longclipscore", untrained.make_long_clip(made / "longclip.pt")
        options.second, options.second_source = "clipscore", untrained.make_open_clip(made / "open_clip")
        options.steps, options.every, options.captions = min(options.steps, 4), 2, 16
        options.max_completion_length, options.image_tokens = 16, 16
    elif options.images is None:
        parser.error("name your photos: --images FOLDER, or try the script with --smoke")
    elif not options.images.exists():
        parser.error(f"--images: there is no {str(options.images)!r}")
    elif options.images.is_file() and options.images.suffix not in FILES:
        parser.error(f"--images {str(options.images)!r} is neither a folder nor one of {', '.join(FILES)}")
    elif not is_torch_bf16_gpu_available():
        parser.error("this needs a GPU that computes in bfloat16, and there is none; else --smoke")
    return options


def token_pixels(model: str | Path) -> int:
    """Pixels of a photo that become one token: 32 x 32 of Qwen3-VL, 28 x 28 of Qwen2-VL, Qwen2.5-VL and by default."""
    images = AutoProcessor.from_pretrained(model, trust_remote_code=False).image_processor
    side = images.patch_size * images.merge_size if hasattr(images, "merge_size") else 28
    return side * side


def read_photos(source: Path, prompt: str, most_pixels: int) -> Dataset:
    """The rows of a folder or a file with a prompt; each photo is upright and no larger than it may be."""
    if source.is_dir():
        rows = load_dataset("imagefolder", data_dir=str(source), split="train", drop_labels=True)
    else:
        rows = load_dataset(FILES[source.suffix], data_files=str(source), split="train")
    if "image" not in rows.column_names:
        raise SystemExit(f"{source} needs a column 'image'; it has {', '.join(rows.column_names)}")
    if getattr(rows.features["image"], "dtype", "").endswith("string"):  # paths, from the file's folder
        rows = rows.map(lambda row: {"image": row["image"] and str(source.parent / row["image"])})
    # it looks at each file, and leaves broken ones out
    rows = make_prompt_dataset(rows.cast_column("image", Image()), prompt)

    def shrink(row):
        photo = load_image(row["image"])
        scale = min(1, (most_pixels / (photo.width * photo.height)) ** 0.5)
        return {"image": photo.resize((max(32, int(photo.width * scale)), max(32, int(photo.height * scale))))}

    return rows.map(shrink, features=rows.features)


if __name__ == "__main__":
    main()
