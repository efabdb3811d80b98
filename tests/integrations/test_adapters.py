"""What verl, ms-swift and OpenRLHF call: each in the form of its own calls. Engines themselves run in tests/engines."""

import asyncio
import inspect
import json
import math
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from PIL import Image

from integrations.ms_swift import CaptionORM
from integrations.openrlhf import make_reward_func
from integrations.verl import compute_score, find_image
from reward import registry
from reward.errors import InvalidSampleError
from tests.toys.picture_scorer import SPEC, PictureScorer

PROMPT = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Describe.<|im_end|>\n<|im_start|>assistant\n"


# rows are (caption, file of its image, references)
def by_verl(rows, **settings):
    infos = [{"index": 0, "image": image, "references": references} for _, image, references in rows]
    results = verl([caption for caption, *_ in rows], infos, **settings)
    if "missing" in settings:
        assert not any(math.isnan(number) for result in results for number in result.values())
    return [result["score"] for result in results]


def verl(captions, infos, **settings):
    """One coroutine a sample, all at the same time."""

    async def together():
        return await asyncio.gather(
            *(
                compute_score(
                    data_source="a", solution_str=caption, ground_truth="The truth.", extra_info=info, **settings
                )
                for caption, info in zip(captions, infos, strict=True)
            )
        )

    return asyncio.run(together())


def by_ms_swift(rows, wait=0, **settings):
    """A call of the trainer has all samples."""
    captions, images, references = zip(*rows, strict=True)
    turns = [{"role": "user", "content": "<image>Describe."}, {"role": "assistant", "content": "A star."}]
    columns = {"messages": [turns] * len(rows), "trainer_state": None, "is_truncated": [False] * len(rows)}
    cells = [image and [{"bytes": Path(image).read_bytes(), "path": None}] for image in images]
    return CaptionORM(args=object(), **settings)(captions, images=cells, references=references, **columns)


def by_openrlhf(rows, **settings):
    """One call a sample, in threads. Labels have paths below a folder."""
    folder = Path(rows[0][1] or ".").parent
    reward_func = make_reward_func(image_root=folder, **settings)

    def call(row):
        caption, image, references = row
        query = PROMPT.replace("<|image_pad|>", "<|image_pad|>" * 300) + caption + "<|im_end|>"
        label = json.dumps({"image": image and Path(image).name, "references": references})
        given = reward_func([query], [PROMPT], [label])
        assert set(given["extra_logs"]) == {"brightness", "words"}
        if "missing" in settings:
            assert not any(math.isnan(number) for number in given["extra_logs"].values())
        assert given["rewards"] == given["scores"]
        return float(given["rewards"])

    with ThreadPoolExecutor(len(rows)) as pool:
        return list(pool.map(call, rows))


adapters = pytest.mark.parametrize("rewards", [by_verl, by_ms_swift, by_openrlhf])


@pytest.fixture
def settings():
    """The reward is the image's brightness. The name is new: rewards of equal settings are kept for the process."""
    return {"metric": "picture", "weights": {"bright": 1}, "name": uuid.uuid4().hex}


@pytest.fixture
def scorer(monkeypatch):
    """Installs the metric `picture`, and gives its scorer."""
    scorer = PictureScorer()
    monkeypatch.setattr(registry, "installed_specs", lambda: {"picture": SPEC})
    monkeypatch.setattr(PictureScorer, "from_pretrained", lambda source, **_: scorer)
    return scorer


@pytest.fixture
def photos(tmp_path):
    """Files: white is 1.0, grey 0.2, and one is no image."""
    for name, level in (("white", 255), ("grey", 51)):
        Image.new("RGB", (4, 4), (level,) * 3).save(tmp_path / f"{name}.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    return {name: str(tmp_path / f"{name}.png") for name in ("white", "grey", "broken")}


@adapters
def test_each_row_gets_the_reward_of_its_caption_image_and_references(rewards, settings, scorer, photos):
    rows = [("A star.", photos["white"], ["One."]), ("Two stars.", photos["grey"], ["A.", "B."])] * 2
    assert rewards(rows, **settings, wait=0.3) == pytest.approx([1.0, 0.2, 1.0, 0.2])
    known = {(sample.candidate, sample.references) for sample in scorer.samples}
    assert known == {("A star.", ("One.",)), ("Two stars.", ("A.", "B."))}
    assert len(scorer.batch_sizes) < 4  # what is asked at the same time is scored together


@adapters
def test_a_row_without_a_score_raises_or_gets_what_is_set_also_in_the_first_call(rewards, settings, scorer, photos):
    broken = ("A star.", photos["broken"], [])
    assert rewards([broken], **settings, missing=-1.0) == [-1.0]
    with pytest.raises(InvalidSampleError, match="none of the 1 rows of the first call"):
        rewards([("A star.", None, [])], **settings)
    with pytest.raises(InvalidSampleError, match="missing=NUMBER"):
        rewards([("A star.", photos["white"], []), broken], **settings)


def test_verl_gives_scores_of_aspects_and_finds_images_and_references_as_rows_have_them(settings, scorer, photos):
    grey = Image.open(photos["grey"])
    infos = [{"image_path": photos["white"]}, {"images": [grey], "image": None}, {"image": grey, "refs": ["Own."]}]
    results = verl(["A star."] * 3, infos, **settings)
    assert [list(result.items()) for result in results] == [
        [("score", pytest.approx(level)), ("brightness", pytest.approx(level)), ("words", 3.0)]
        for level in (1.0, 0.2, 0.2)
    ]
    assert [sample.references for sample in scorer.samples] == [("The truth.",)] * 2 + [("Own.",)]
    assert inspect.iscoroutinefunction(compute_score)  # as verl looks for one


class NaiveRewardManager:
    """As much of verl's manager as ours builds on; verl is not installed here."""

    def __init__(self, config, tokenizer, compute_score):
        self.compute_score = compute_score

    async def run_single(self, data):
        return await self.compute_score("a", "A star.", "The truth.", data.non_tensor_batch["extra_info"][0])


class Batch:
    """Rows of verl's `DataProto`."""

    def __init__(self, **columns):
        self.non_tensor_batch = columns

    def __getitem__(self, rows):
        return Batch(**{name: values[rows] for name, values in self.non_tensor_batch.items()})


def test_verls_manager_hands_over_the_images_of_the_prompt_unless_the_row_has_its_own(photos, monkeypatch):
    parent = ModuleType("verl.experimental.reward_loop.reward_manager.naive")
    parent.NaiveRewardManager = NaiveRewardManager
    monkeypatch.setitem(sys.modules, parent.__name__, parent)
    monkeypatch.delitem(sys.modules, "integrations.verl.reward_manager", raising=False)
    from integrations.verl.reward_manager import CaptionRewardManager

    async def given(*arguments):
        return find_image(arguments[-1])

    config = SimpleNamespace(reward=SimpleNamespace(custom_reward_function=SimpleNamespace(path="file.py")))
    manager = CaptionRewardManager(config, None, given)
    prompt = [{"role": "user", "content": [{"type": "image", "image": photos["white"]}]}]
    for info, image in (({"index": 1}, [photos["white"]]), ({"image": photos["grey"]}, photos["grey"])):
        batch = Batch(raw_prompt=[None, prompt], extra_info=[None, info])
        assert asyncio.run(manager.run_single(batch)) == image
