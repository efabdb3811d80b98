"""Rewrites by a language model: prompts, answers, where these are kept; text-only models that write them."""

import json

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers import LlamaConfig, LlamaForCausalLM

from reward.errors import ConfigError, InvalidSampleError, JudgeError, OutputError
from reward.judges import Answer, LocalJudge, Question, ScriptedJudge
from reward.scenes.pairs import CATEGORIES
from reward.training.corruptions.prompts import load_prompts
from reward.training.corruptions.rewrites import read_answer, rewrite_captions
from reward.training.corruptions.sampler import Negative
from tests.toys.toy_judges import RecordingJudge, byte_tokenizer
from tests.toys.toy_models import text_sizes

CAPTIONS = [f"There are {number} red stars on the left." for number in range(40)]


def caption_of(question):
    """What a judge reads: the JSON string at the end of the request."""
    return json.loads(question.text.strip().splitlines()[-1])


def write_prompts(path, **changed):
    ours = load_prompts()
    values = {"version": 1, "system": ours.system, "request": ours.request, "changes": dict(ours.changes)} | changed
    path.write_text(yaml.safe_dump(values), encoding="utf-8")


class Blue(ScriptedJudge):
    """Makes red things blue; counts its calls, keeps their limits of length, and stops at `limit` as Ctrl-C would."""

    def __init__(self, limit=None, **options):
        super().__init__(lambda question: json.dumps(caption_of(question).replace("red", "blue")), **options)
        self.lengths, self.limit = [], limit

    def generate(self, questions, *, max_new_tokens=256, **options):
        if len(self.lengths) == self.limit:
            raise KeyboardInterrupt
        self.lengths.append(max_new_tokens)
        return super().generate(questions, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.sqlite"


def test_rewrites_are_negatives_by_category(path):
    prompts, judge = load_prompts(), RecordingJudge("")
    rewrite_captions(["A red star."], judge, path)
    assert set(prompts.changes) == {*CATEGORIES, "noun_attribute"}  # the paper's own has both in one
    assert {question.system for question in judge.asked} == {prompts.system}
    for question, change in zip(judge.asked, prompts.changes.values(), strict=True):
        assert question.text.startswith(change)
    path.unlink()
    found = rewrite_captions(["A red star.", "A ring."], Blue(), path, categories=["attribute", "noun"])
    assert found.negatives == [[Negative("A blue star.", "attribute"), Negative("A blue star.", "noun")], []]
    assert found.counts == {name: {"kept": 1, "unchanged": 1} for name in ("attribute", "noun")}


@pytest.mark.parametrize("interrupted_after", [0, 2])
def test_an_interrupted_run_goes_on_and_asks_nothing_twice(path, tmp_path, interrupted_after):
    def rewrite(judge, file=path):
        return rewrite_captions(CAPTIONS, judge, file, categories=["attribute", "noun"]).negatives

    with pytest.raises(KeyboardInterrupt):
        rewrite(Blue(limit=interrupted_after))
    for asked in (80 - 32 * interrupted_after, 0):
        judge = Blue()
        assert rewrite(judge) == rewrite(Blue(), tmp_path / "b.sqlite")
        assert judge.usage.answered == asked
    assert judge.lengths == []
    more = Blue()  # captions and categories can be added
    rewrite_captions([*CAPTIONS, "A new red star."], more, path, categories=["noun", "count"])
    assert more.usage.answered == 1 + 41


def test_answers_of_other_prompts_or_judge_is_refused(path, tmp_path):
    rewrite_captions(CAPTIONS, Blue(), path, categories=["noun"])
    with pytest.raises(OutputError, match="judge was 'scripted', now 'other'"):
        rewrite_captions(CAPTIONS, Blue(name="other"), path)
    changes = load_prompts().changes
    write_prompts(tmp_path / "mine.yaml", changes={**changes, "noun": changes["noun"] + " Be bold."})
    mine = load_prompts(tmp_path / "mine.yaml")
    with pytest.raises(OutputError, match="prompts was"):
        rewrite_captions(CAPTIONS, Blue(), path, prompts=mine)
    judge = Blue()
    rewrite_captions(CAPTIONS, judge, path, prompts=mine, categories=["noun"], overwrite=True)
    assert judge.usage.answered == 40


def test_failed_questions_are_warned_of_and_asked_again(path):
    healed = False

    def answer(question):
        if "7 red" in question.text and not healed:
            raise JudgeError("timed out")
        return "There are 9 red stars on the left."

    judge = ScriptedJudge(answer)
    with pytest.warns(UserWarning, match=r"4 rewrites have no answer.*timed out"):
        found = rewrite_captions(CAPTIONS, judge, path, categories=["count"])
    assert found.counts["count"] == {"kept": 35, "unchanged": 1, "failed": 4}
    assert found.negatives[7] == []
    healed, before = True, judge.usage.answered
    assert rewrite_captions(CAPTIONS, judge, path, categories=["count"]).counts["count"]["kept"] == 39
    assert judge.usage.answered == before + 4


def test_a_judge_that_fails_on_everything_stops_the_run(path):
    def answer(question):
        raise JudgeError("server down")

    judge = RecordingJudge(answer)
    with pytest.raises(JudgeError, match="server down"):
        rewrite_captions(CAPTIONS, judge, path)
    assert len(judge.asked) == 32  # one call's worth
    assert not path.exists()


def test_length_limit_grows_with_the_caption(path):
    judge = Blue()
    for caption in ("A star.", "star " * 500):
        rewrite_captions([caption], judge, path, categories=["noun"])
    assert judge.lengths == [67, 1314]
    cut = RecordingJudge(Answer("", truncated=True), name="cut")
    found = rewrite_captions(["A star."], cut, path, categories=["noun"], overwrite=True)
    assert found.counts["noun"]["cut"] == 1


@pytest.mark.parametrize(
    ("captions", "categories", "error", "message"),
    [
        *((["A star.", bad], None, InvalidSampleError, "candidate") for bad in (" ", None, "half \ud83d")),
        (["A star."], ["nouns"], ConfigError, "unknown categories nouns; known: spatial"),
    ],
)
def test_bad_captions_and_unknown_categories_are_named(path, captions, categories, error, message):
    with pytest.raises(error, match=message):
        rewrite_captions(captions, Blue(), path, categories=categories)


@given(st.text(min_size=1).filter(str.strip))
@settings(max_examples=100, deadline=None)
def test_a_caption_cannot_break_out_of_its_place(caption):
    prompts = load_prompts()
    start, end = prompts.fill("noun", "\ue000").split('"\ue000"')
    filled = prompts.fill("noun", caption)
    assert filled.startswith(start)
    assert filled.endswith(end)
    inside = filled[len(start) : len(filled) - len(end)]
    assert json.loads(inside) == caption
    assert len(inside.splitlines()) == 1


CAPTION = 'Two red stars lie beside a sign that says "OPEN".'
EDITED = 'Two blue stars lie beside a sign that says "OPEN".'


@pytest.mark.parametrize(
    "answer",
    [
        EDITED,
        json.dumps(EDITED),
        f"  {json.dumps(EDITED)}\n",
        f"```json\n{json.dumps(EDITED)}\n```",
        f"<think>\nLet me see.\n</think>\n\n{json.dumps(EDITED)}",
        f"“{EDITED}”",
        f'"{EDITED}"',  # quotes inside not escaped: no JSON
        EDITED.replace('"', '\\"'),
    ],
)
def test_ways_to_answer(answer):
    assert read_answer(CAPTION, answer) == (EDITED, "")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "empty"),
        ('""', "empty"),
        ("<think>Hmm, let me", "empty"),
        ('"\\ud83d half"', "empty"),
        (CAPTION, "unchanged"),
        (json.dumps(CAPTION), "unchanged"),
        (f"'{CAPTION.upper()}' \n", "unchanged"),
        (f"Here is the edited caption:\n{EDITED}", "lines"),
        (f"{EDITED}\n\nI changed the colour.", "lines"),
        ("No.", "length"),
        ("I am sorry, but I cannot help with that request. " * 3, "length"),
        ("I'm sorry, but I can't assist with that request.", "unlike"),
    ],
)
def test_answers_that_are_no_negatives(answer, reason):
    assert read_answer(CAPTION, answer) == (None, reason)
    assert read_answer("Two dogs.", "I'm sorry.") == (None, "unlike")
    assert read_answer(CAPTION, EDITED, cut=True) == (None, "cut")


ESCAPED = "A \\u003cb\\u003e sign \\u005bblue\\u005d lies."


@pytest.mark.parametrize(
    ("caption", "answer", "negative"),
    [
        ("The girl feeds the goat.", "The goat feeds the girl.", "The goat feeds the girl."),
        ("Dogs", "Cats", "Cats"),
        ("两颗红色的星星。", "三颗红色的星星。", "三颗红色的星星。"),
        ("A <b> sign [red] lies.", f'"{ESCAPED}"', "A <b> sign [blue] lies."),
        ("A <b> sign [red] lies.", ESCAPED, "A <b> sign [blue] lies."),
    ],
)
def test_swaps_short_captions_and_escapes_pass(caption, answer, negative):
    assert read_answer(caption, answer) == (negative, "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"request": "{change}"}, "{caption} exactly once"),
        ({"changes": {}}, "changes"),
        ({"changes": {"noun": None}}, "changes.noun"),
        ({"extra": 1}, "has no field 'extra'"),
        (None, "cannot be read"),
    ],
)
def test_broken_prompt_files_are_refused(tmp_path, content, message):
    if isinstance(content, dict):
        write_prompts(tmp_path / "mine.yaml", **content)
    with pytest.raises(ConfigError, match=message):
        load_prompts(tmp_path / "mine.yaml")


# Text-only language models

# As text-only chat models have it: contents are strings, thinking can be switched off.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.strip() }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{% if enable_thinking is not defined or enable_thinking %}<think>{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    tokens = byte_tokenizer()
    tokens.chat_template = TEMPLATE
    torch.manual_seed(0)
    sizes = text_sizes(tokens, width=32, layers=2, positions=8192)
    config = LlamaConfig(**sizes, initializer_range=0.3)
    LlamaForCausalLM(config).save_pretrained(path)
    tokens.save_pretrained(path)
    return path


def test_writes_what_the_model_writes(folder):
    """Against transformers' own greedy generation."""
    judge = LocalJudge.from_pretrained(folder, device="cpu")
    questions = [Question(f"Edit this: {text}", system="You edit.") for text in ("a star", "two green rings")]
    answers = judge.generate(questions, max_new_tokens=12)
    tokens = byte_tokenizer()
    for question, answer in zip(questions, answers, strict=True):
        turns = ("system\nYou edit.", f"user\n{question.text}")
        prompt = "".join(f"<|im_start|>{turn}<|im_end|>\n" for turn in turns) + "<|im_start|>assistant\n"
        ids = tokens(prompt, return_tensors="pt")
        written = judge.model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
        assert answer.text == tokens.decode(written, skip_special_tokens=True)
    assert answers[0].text != answers[1].text


def test_it_sees_nothing(folder):
    with pytest.raises(JudgeError, match="reads no images"):
        LocalJudge.from_pretrained(folder, device="cpu").generate(
            [Question("What is it?", image=Image.new("RGB", (8, 8)))]
        )
