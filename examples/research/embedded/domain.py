"""What the embedded checkpoints say of their domain, and how often that is wrong, on scenes and on photos.

    python -m examples.research.measure domain --given photos=FOLDER
    python -m examples.research.embedded.domain --write

An image is of the domain if a share of its pixels has the colour of one of the scenes' grounds, a caption if nearly all
of its words occur in captions that the checkpoints were trained on. The limits were chosen by looking at scenes of
other seeds than those of the table, and at the photos in the wheels of scikit-image and scikit-learn. The photos held
out are in the wheels of gradio, imgaug, mahotas, matplotlib and ultralytics, the other pictures in that of
scikit-image: `pip download --no-deps` them, unzip them into a folder, and give it with `--photos`.

There are few photos, so each is also measured in `VARIANTS` others: crops, sizes, JPEG qualities and grey ones.
"""

from __future__ import annotations

import argparse
import io
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from PIL import Image, ImageFilter

import reward
from examples.research.embedded.attacked import draw_sample
from examples.research.stored import Row, write_csv
from integrations.demo.captioner import decoded_batches, load_captioner
from reward.domain import Domain, words_of
from reward.scenes import make_rated_sample, render, sample_scene

__all__ = ["make_domain"]

# Scenes as drawn have a share of .72 and more, resized ones at JPEG quality 70 and more .40, photos .28 at most. Of
# captions that a policy samples, next to none has a tenth of unknown words.
LIMITS = {"tolerance": 8, "least_ground": 0.35, "most_unknown": 0.15}
VARIANTS = 20

# Photos with captions of ours.
HELD_OUT = {
    "cheetah.jpg": "A cheetah stands in the dry grass and looks to the right.",
    "cheetah1.jpg": "The head of a cheetah, with black lines from the eyes to the mouth.",
    "cheetah2.jpg": "A cheetah walks over a plain under a white sky.",
    "lion.jpg": "A lion with a large mane looks into the camera.",
    "tower.jpg": "The Eiffel Tower rises into the evening sky over the roofs of Paris.",
    "groot.jpeg": "A small figure of wood with a friendly face.",
    "quokka.jpg": "A quokka chews a leaf in the sun.",
    "DepartmentStore.jpg": "Shoppers stand in the hall of a department store with galleries on several floors.",
    "luispedro.jpg": "A young man with a beard smiles.",
    "grace_hopper.jpg": "An officer in a navy uniform sits before the flag.",
    "bus.jpg": "A blue bus drives past three people on a street in Spain.",
    "zidane.jpg": "Two men in suits stand at the edge of a football field.",
}
OTHER = ("page.png", "text.png", "logo.png", "horse.png", "phantom.png", "moon.png", "retina.jpg", "cell.png")


def make_domain(samples: int = 4000) -> Domain:
    """The entry of the embedded checkpoints, from scenes and from captions drawn as in training."""
    grounds: Counter[tuple[int, ...]] = Counter()
    words: Counter[str] = Counter()
    for index in range(samples):
        sample = draw_sample(random.Random(f"domain {index}"), references=1)
        colours = render(sample.scene).getcolors(maxcolors=96 * 96)
        grounds[max(colours)[1]] += 1
        # Letters of other scripts come from attacks: no caption in them is worth a score.
        texts = [*sample.references, sample.candidate.caption.text]
        words.update(word for text in texts for word in words_of(text) if word.isascii())
    return Domain(
        "drawings of coloured shapes and captions of them, and nothing else",
        'MetricReward("clipscore", "ViT-L-14:openai")',
        grounds=tuple(ground for ground, count in sorted(grounds.items()) if count > samples / 100),
        words=" ".join(sorted(words)),
        **LIMITS,
    )


def _jpeg(image: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def _resized(image: Image.Image, rng: random.Random) -> Image.Image:
    scale = rng.choice((48, 64, 80, 128, 150, 224, 336, 512, 768)) / max(image.size)
    how = rng.choice([Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS])
    return image.resize((max(8, round(image.width * scale)), max(8, round(image.height * scale))), how)


def _cropped(image: Image.Image, rng: random.Random) -> Image.Image:
    width, height = (round(side * rng.uniform(0.3, 1)) for side in image.size)
    left, top = rng.randint(0, image.width - width), rng.randint(0, image.height - height)
    return image.crop((left, top, left + width, top + height))


CHANGES: dict[str, Callable[[Image.Image, random.Random], Image.Image]] = {
    "as it is": lambda image, rng: image,
    "JPEG 70 to 95": lambda image, rng: _jpeg(image, rng.randint(70, 95)),
    "resized, 48 to 768 pixels": _resized,
    "resized, then JPEG 70 to 95": lambda image, rng: _jpeg(_resized(image, rng), rng.randint(70, 95)),
    "blurred": lambda image, rng: image.filter(ImageFilter.GaussianBlur(image.width / 96)),
    "grey": lambda image, rng: image.convert("L").convert("RGB"),
    "cropped, resized, then JPEG": lambda image, rng: _jpeg(_resized(_cropped(image, rng), rng), rng.randint(70, 95)),
}


def image_rows(domain: Domain, count: int, folder: Path) -> Iterator[Row]:
    """How many images are called out of domain: scenes of other seeds, photos in several forms, and other pictures."""
    files = {path.name: path for path in sorted(folder.rglob("*")) if path.name in (*HELD_OUT, *OTHER)}
    photos, others = ([Image.open(files[name]).convert("RGB") for name in names] for names in (HELD_OUT, OTHER))
    scenes = [render(sample_scene(random.Random(f"domain held out {index}"))) for index in range(count)]
    every = list(CHANGES)
    sets = {
        "scenes": (scenes, every[:5]),  # no scene of this library is grey or cropped
        f"photos held out ({len(photos)})": (photos, every),
        "other pictures": (others, every[:1]),
    }
    for name, (images, changes) in sets.items():
        for change in changes:
            rng = random.Random(f"{name} {change}")
            times = 1 if name == "scenes" or change in ("as it is", "blurred", "grey") else VARIANTS
            shares = [domain.ground_share(CHANGES[change](image, rng)) for image in images for _ in range(times)]
            yield _row("images", name, change, shares, sum(share < domain.least_ground for share in shares))


def caption_rows(domain: Domain, count: int) -> Iterator[Row]:
    """How many captions are called out of domain: of scenes, as in training, by the captioner, and of photos."""
    draws = [random.Random(f"domain held out {index}") for index in range(count)]
    texts = {
        ("scenes", "captions of any quality"): [make_rated_sample(rng).candidate.caption.text for rng in draws],
        ("scenes", "as in training, attacked"): [
            draw_sample(rng, references=0).candidate.caption.text for rng in draws
        ],
    }
    model, processor = load_captioner()
    images = [render(sample_scene(random.Random(f"domain sampled {index}"))) for index in range(count // 20)]
    for temperature in (0.7, 1.0, 1.3):
        torch.manual_seed(0)
        options = {"do_sample": True, "temperature": temperature, "num_return_sequences": 4, "max_new_tokens": 120}
        batches = decoded_batches(model, processor, images, 4, lambda rows, options=options: options)
        texts["scenes", f"captioner, temperature {temperature}"] = [text for batch in batches for text in batch]
    texts["photos held out", "captions of ours"] = list(HELD_OUT.values())
    for (name, kind), captions in texts.items():
        shares = [domain.unknown_share(caption) for caption in captions]
        flagged = sum(share > domain.most_unknown for share in shares)
        yield _row("captions", name, kind, shares, flagged)


def _row(what: str, of: str, form: str, shares: Sequence[float], flagged: int) -> Row:
    ordered = sorted(shares)
    ends = {"lowest": ordered[0], "median": ordered[len(ordered) // 2], "highest": ordered[-1]}
    names = {"what": what, "of": of, "form": form, "n": str(len(shares)), "flagged": str(flagged)}
    return names | {end: f"{share:.3f}" for end, share in ends.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Measures the entry, or writes it into the config.json of the embedded checkpoints; no weights are changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=4000, help="default: %(default)s")
    parser.add_argument("--photos", type=Path, metavar="FOLDER", help="with the photos and other pictures")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="for the table")
    parser.add_argument("--write", action="store_true", help="writes the entry instead of measuring it")
    options = parser.parse_args(argv)
    if not options.write and not (options.photos and options.csv):
        parser.error("give --photos and --csv, or --write")
    domain = make_domain()
    if options.write:
        for metric in ("vela", "beitscore"):
            path = Path(reward.__file__).parent / "assets" / metric / "config.json"
            config = json.loads(path.read_text(encoding="utf-8")) | {"domain": domain.to_config()}
            path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    rows = [*image_rows(domain, options.scenes, options.photos), *caption_rows(domain, options.scenes)]
    write_csv(options.csv, rows, f"--scenes {options.scenes}")


if __name__ == "__main__":
    main()
