"""Any judge in words: prompts and answers, criteria and questions from columns, files, rewards, the service."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from reward import CaptionSample, MetricReward, RemoteReward, load_scorer
from reward.errors import ConfigError, InvalidSampleError, JudgeError
from reward.judges import Answer, LocalJudge, ServerJudge, Usage
from reward.judges.base import NO_PROBABILITIES
from reward.metrics.judge_metric.items import Item, read_questions, read_rubric, shuffle_choices
from reward.metrics.judge_metric.prompt import AskPrompt
from reward.metrics.judge_metric.scorer import ClairScorer, JudgeScorer, QuestionsScorer, VqaScorer
from reward.scoring import score_dataset
from tests.reward.service.in_process import App
from tests.toys.fake_service import fake_service
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.loopback_judge import loopback_judge
from tests.toys.toy_judges import RecordingJudge, save_yes_judge

RED = Image.new("RGB", (16, 16), "red")
DRAFT, FINAL = '{"score": 100}', '{"score": 5, "reason": "no"}'
RUBRIC = [{"criterion": "It names the dog.", "weight": 3}, "It is short."]


def no_probabilities(question):
    raise JudgeError(NO_PROBABILITIES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_yes_judge(tmp_path_factory.mktemp("judge"))


@pytest.mark.parametrize(
    ("answer", "options", "expected"),
    [
        ("I count 3 dogs.\nFinal score: **2**", {"pattern": "Final score: {number}"}, 0.25),
        ("<score> 2.5 </score>", {"pattern": "<score>{number}</score>"}, 0.375),
        ("<think>Score: 1?</think>\n> Score: 1\nScore: 5", {"pattern": "Score: {number}"}, 1.0),
        ("Score: 2. Or rather Score: 3.", {"pattern": "Score: {number}"}, "several numbers"),
        ("Between 2 and 3.", {}, "say where the grade stands with pattern="),
        (Answer("Good so far", truncated=True), {}, "raise max_new_tokens="),
        ('{"score": 4, "reason": "2 dogs"}', {"prompt": {"ask": "{caption}", "read": "json"}}, 0.75),
    ],
)
def test_a_number_is_read_at_its_place_or_there_is_a_reason(answer, options, expected):
    scorer = JudgeScorer(RecordingJudge(answer), **{"prompt": "Rate it: {caption}", "scale": "1:5", **options})
    table = scorer.score(RED, "A dog.")
    assert table.scores == expected if isinstance(expected, float) else expected in table.errors[0]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("**No**, it is a cat.", 0.0),
        ("Hm.\nAnswer: yes.", 1.0),
        ("Maybe", "not one of Yes, No"),
    ],
)
def test_without_log_probabilities_the_word_that_is_written_counts(written, expected):
    answers = [lambda question: {"Yes": 0.3, "No": 0.1}, no_probabilities]
    judge = RecordingJudge(written, lambda question: answers[0](question))
    settled = JudgeScorer(judge, prompt="yes")
    assert settled.score(RED, "A dog.").scores == pytest.approx(0.75)
    answers.pop(0)
    assert "no log probabilities" in settled.score(RED, "A dog.").errors[0], "a run keeps to its way of reading"
    assert "no log probabilities" in VqaScorer(judge).score(RED, "A dog.").errors[0], "it is made of them"
    judge.asked.clear()
    scorer = JudgeScorer(judge, prompt=True)  # as YAML reads prompt=yes
    for _ in range(2):
        table = scorer.score(RED, "A dog.")
        assert table.scores == expected if isinstance(expected, float) else expected in table.errors[0]
    assert len(judge.asked) == 3  # the second time it is asked for the word at once
    with pytest.raises(JudgeError, match="no function `distribution`"):  # the judge itself
        JudgeScorer(RecordingJudge(), prompt=True).score(RED, "A dog.")


def test_five_lines_of_the_users_yaml_ask_published_judges(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text('ask: "Score it: {caption}"\npattern: "Score: {number}"\nscale: 1:5\nsystem: ""\nquote: false\n')
    judges = [RecordingJudge("I see. Score: 4"), RecordingJudge("Score: 2"), RecordingJudge("None.")]
    assert JudgeScorer(judges[:2], prompt=mine).score(RED, "A dog.").scores == 0.5  # the mean of 0.75 and 0.25
    assert judges[0].asked[0].turns() == [("user", "Score it: A dog.")]
    assert "holds no number" in JudgeScorer(judges, prompt=mine).score(RED, "A dog.").errors[0]
    assert JudgeScorer(judges[1], prompt=mine, sees_image=False, scale="0:10").score(["A dog."]).scores == 0.2
    assert judges[1].asked[-1].image is None


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ({"prompt": "{caption}"}, {}, "has no field 'prompt'; the fields are ask, read, pattern, scale"),
        ({"scale": "1:5"}, {}, "lacks the field 'ask'"),
        ("Rate it: {caption}", {}, "for a question that is answered by Yes or No write read: yes"),
        ("Rate it: {caption}", {"scale": "5:1"}, "'scale' must be the lowest and the highest grade"),
        ("Rate it: {caption}", {"scale": "1:5", "pattern": "Score:"}, r"pattern must hold \{number\}"),
        ({"ask": "Rate it.", "scale": "1:5"}, {}, r"must hold \{candidate\} exactly once"),
        ({"ask": "{caption}", "read": "digit", "scale": "0:10"}, {}, "needs a scale of single digits"),
    ],
)
def test_prompts_that_cannot_be_are_refused_with_a_right_one(prompt, options, message):
    with pytest.raises(ConfigError, match=message):
        AskPrompt.of(prompt, **options)


RUBRICS = [
    "- a\n- b",
    "1. a\n\n2) b\n",
    [{"title": "A", "description": "a", "weight": 1}, {"criterion": "b", "points": "1"}],
    json.dumps({"criterion": ["a", "b"], "weight": [1, 1]}),
    ["a", "b"],
]


@pytest.mark.parametrize("cell", RUBRICS)
def test_criteria_in_the_forms_that_people_have(cell):
    assert [(item.text, item.weight) for item in read_rubric(cell)] == [("a", 1.0), ("b", 1.0)]


CHOICES = ["cat", "dog"]
DOG = Item("q", 1, "dog", ("cat", "dog"))


@pytest.mark.parametrize(
    ("fields", "item"),
    [
        ({"question": "q", "answer": "dog"}, Item("q", answer="dog")),
        ({"question": "q", "answer": "B", "choices": CHOICES}, DOG),
        ({"question": "q", "answer": "Dog", "options": CHOICES}, DOG),
        ({"question": "q", "answer": 1, "choices": CHOICES}, DOG),
        ({"question": "q", "answer": "yes"}, Item("q", 1, "Yes", ("Yes", "No"))),
        ({"question": "q", "answer": False}, Item("q", 1, "No", ("Yes", "No"))),
    ],
)
def test_questions_in_the_forms_that_people_have(fields, item):
    for cell in ([fields], json.dumps([fields]), {name: [value] for name, value in fields.items()}):
        assert read_questions(cell) == (item,)


@pytest.mark.parametrize(
    ("choices", "orders"), [(["red", "green", "blue"], 6), (["cat", "dog", "Both of them"], 1), (["cat", "A and B"], 1)]
)
def test_choices_are_shuffled_by_the_seed_and_the_question_alone(choices, orders):
    def shuffled(question, seed, texts=choices):
        return shuffle_choices(Item(question, answer=choices[0], choices=tuple(texts)), seed).choices

    assert len({shuffled("Which?", seed) for seed in range(40)}) == orders
    assert len({shuffled(f"Which, {number}?", 0) for number in range(40)}) == orders
    assert len({shuffled("Is it A. red or B. green?", seed) for seed in range(40)}) == 1
    if orders > 1:
        assert shuffled("Which?", 3) == shuffled("Which?", 3, reversed(choices)), "whatever their order in the data"


def test_a_judge_that_prefers_a_letter_prefers_no_answer(tmp_path):
    """Where the right choice always comes first, a judge that always says A has a share of one third by its answers."""
    judge = RecordingJudge(distribution={"A": 0.7, "B": 0.1, "C": 0.1, "D": 0.1})
    judge.fingerprint = "the same"  # it remembers its questions
    rows = []
    for number in range(300):
        question = {"question": f"What is thing {number}?", "answer": "red", "choices": ["red", "green", "blue"]}
        rows.append({"caption": "A red star.", "questions": [question]})
    in_process = QuestionsScorer(judge).score(rows).scores[:, 0]
    assert in_process.mean() == pytest.approx((0.7 + 0.1 + 0.1) / 3, abs=0.05)
    assert QuestionsScorer(judge, seed=1).score(rows).scores[:, 0].tolist() != in_process.tolist()
    score_dataset(write_lines(tmp_path / "rows.jsonl", rows), QuestionsScorer(judge), tmp_path / "scores.jsonl")
    assert [row["answered"] for row in read_lines(tmp_path / "scores.jsonl")] == in_process.tolist()


@pytest.mark.parametrize(
    ("read", "cell", "message"),
    [
        (read_rubric, None, "the row has no rubric; write"),
        (read_rubric, 3, r'must be a list, got 3; write \["It names the dog."'),
        (read_rubric, {"a": 1}, r"must be a list, got {'a': 1}; write"),
        (read_rubric, ["a", " "], "item 2 has no text"),
        (read_rubric, [["a", 1]], "item 1 has no text"),
        (read_rubric, [{"criterion": "a", "weight": "much"}], "has the weight 'much', which is no number"),
        (read_rubric, [{"criterion": "a", "weight": -1}], "nothing with a weight above 0"),
        (read_questions, ["What runs?"], "item 1 is 'What runs"),
        (read_questions, [{"question": "What runs?"}], "has no answer"),
        (read_questions, [{"question": "q", "answer": "E", "choices": ["a"]}], "'E', which is none of its choices"),
        (
            read_questions,
            [{"question": "q", "answer": "B", "choices": ["A. a", "(B) b"]}],
            "letters before its choices",
        ),
        (read_questions, [{"question": "q\nA. cat\n(B) dog", "answer": "B"}], "lists choices in its text"),
    ],
)
def test_wrong_cells_are_refused_with_the_right_form(read, cell, message):
    with pytest.raises(InvalidSampleError, match=message):
        read(cell)


def test_a_rubric_is_the_weighted_share_of_yes_and_vqascore_the_probability_of_it():
    likely = {"It names the dog.": {"Yes": 0.3, "No": 0.1}, "It is short.": {"Yes": 0.1, "No": 0.1}}
    judge = RecordingJudge(distribution=lambda asked: next(likely[text] for text in likely if text in asked.text))
    rubric = [*RUBRIC, {"criterion": "It is short.", "weight": -1}]
    table = load_scorer("rubric", judge).score([{"image": RED, "caption": "A dog runs.", "rubric": rubric}])
    assert table.scores == pytest.approx((3 * 0.75 + 0.5 - 0.5) / 4)
    assert all("> A dog runs." in asked.text and asked.image is RED for asked in judge.asked)
    scores = [
        VqaScorer(RecordingJudge(distribution=each)).score(RED, "A dog.").scores[0, 0] for each in likely.values()
    ]
    assert scores == [0.3, 0.1]
    table = VqaScorer(RecordingJudge(distribution={"Yes": 0.004, "No": 0.005})).score(RED, "A dog.")
    assert "Yes, No a probability of 0.009" in table.errors[0]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('Sure: {"reason": "", "score": 7.5} That is it.', 0.075),
        ('{"score": 101}', "must be a number from 0 to 100, got 101"),
        ('{"score": true}', "must be a number from 0 to 100, got True"),
        (f"The caption 'A dog's {DRAFT}' ... {FINAL}", 'different values of "score"'),
        (f'The caption says "A star. {DRAFT}" and no more. {FINAL}', 0.05),
        (f"It says \u201cA star. {DRAFT}\u201d: {FINAL}", 0.05),
        (f"The caption is '{DRAFT}'. {FINAL}", 0.05),
        (f"> {DRAFT}\n<think>{DRAFT}</think>{FINAL}", 0.05),
        ('{"score": 5, "reason": "It says {\\"score\\": 100}."}', 0.05),
        (f"The set {{a, b}} is fine. {FINAL}", "holds no complete JSON object"),
        (f'{FINAL} {{"sure": true}}', 0.05),
        (f'{{"score": 5, oops, "parts": {DRAFT}}}', "holds no complete JSON object"),
        ('{"a":' * 3000, "holds no complete JSON object"),
        ('{"score": "\\ud83d"}', "must be a number from 0 to 100"),
        (Answer('{"score"', truncated=True), "raise max_new_tokens="),
    ],
)
def test_clair_compares_with_references_alone_and_reads_json(answer, expected):
    judge = RecordingJudge(answer)
    table = ClairScorer(judge).score([CaptionSample("A star.", RED, ["One.", "Two."])])
    assert [(question.image, question.text.count("> ")) for question in judge.asked] == [(None, 3)]
    assert table.scores == expected if isinstance(expected, float) else expected in table.errors[0]


def test_questions_are_answered_from_the_caption_alone_or_with_the_picture():
    def answer(asked):
        return "The Dog." if "> A dog runs." in asked.text else "unknown" if "> A pet." in asked.text else "a hound"

    def letters(asked):
        if "Does the answer" in asked.text:
            return {"Yes": 0.6, "No": 0.2}
        return {"A": 0.4, "B": 0.2, "C": 0.2} if "A. dog" in asked.text else {"A": 0.2, "B": 0.4, "C": 0.2}

    judge = RecordingJudge(answer, letters)
    free = [{"question": "What runs?", "answer": "a dog"}]
    samples = [CaptionSample(text, RED, columns={"questions": free}) for text in ("A dog runs.", "A pet.", "A hound.")]
    assert QuestionsScorer(judge).score(samples).scores[:, 0] == pytest.approx([1.0, 0.0, 0.75])
    assert all(asked.image is None for asked in judge.asked)
    assert "> a hound" in judge.asked[-1].text
    both = {"questions": [{"question": "What runs?", "answer": "dog", "choices": CHOICES, "weight": 3}, *free]}
    table = QuestionsScorer(judge, sees_image=True).score([CaptionSample("A dog runs.", RED, columns=both)])
    assert table.scores == pytest.approx((3 * 0.5 + 1) / 4)
    assert all(asked.image is RED for asked in judge.asked[-2:])


def test_the_summary_of_a_run_counts_how_answers_were_read(tmp_path):
    counts = {"probabilities": 5, "text": 0}  # some of a run before

    def grade(question):
        counts["text"] += 1
        return "4"

    judge = RecordingJudge(grade)
    judge.usage = type("Counted", (Usage,), {"readings": counts})()
    judge.fingerprint = "the same"  # it remembers its questions
    scorer = JudgeScorer(judge, prompt="Rate it: {caption}", scale="1:5", sees_image=False)
    data = write_lines(tmp_path / "data.jsonl", [{"caption": f"{number} dogs."} for number in range(70)])
    assert score_dataset(data, scorer, tmp_path / "scores.jsonl").readings == {"text": 70}, "of two parts"
    assert score_dataset(data, scorer, tmp_path / "scores.jsonl").readings == {"text": 70}, "as it was written"


def test_a_reward_reads_the_column_and_stops_where_no_row_has_one():
    judge = RecordingJudge("4", {"Yes": 0.9, "No": 0.1})
    call = {"prompts": ["x"] * 2, "completions": ["A dog.", "A cat."], "image": [RED] * 2}
    assert MetricReward("rubric", judge)(**call, criteria=[RUBRIC, "It is short."]) == pytest.approx([0.9, 0.9])
    mine_too = MetricReward("rubric", [judge, judge], column="mine")
    assert mine_too(**call, mine=[RUBRIC, 5]) == [pytest.approx(0.9), None]
    for columns, message in (
        ({}, r"no column is named rubric, criteria, .*Name the column with column="),
        ({"rubric": [None, None]}, r"column 'rubric' holds None"),
        ({"rubric": [5, 5]}, r'must be a list, got 5; write \["It names'),
    ):
        with pytest.raises(InvalidSampleError, match=message):
            MetricReward("rubric", judge)(**call, **columns)
    assert MetricReward("judge", judge, prompt="Rate it: {caption}", scale="1:5")(**call) == [0.75, 0.75]
    with pytest.raises(ConfigError, match="leave out column="):
        MetricReward("judge", "a/b", column="q")


@pytest.mark.slow
def test_a_remote_reward_is_that_in_process_with_the_criteria_of_a_caption(folder):
    app, image = App(f"rubric={folder}"), Image.effect_noise((40, 30), 90).convert("RGB")
    samples = [CaptionSample(text, image, columns={"rubric": RUBRIC}) for text in ("A dog runs.", "Two cats.")]
    with fake_service() as fake:
        fake.facts = app.thread.facts["rubric"]
        fake.answer = lambda request: app.post("/score", request)
        remote = RemoteReward(fake.url, "rubric", timeout=30.0)
        assert remote.rewards(samples) == pytest.approx(MetricReward("rubric", folder, device="cpu").rewards(samples))


@pytest.mark.slow
def test_an_address_is_a_judge_behind_a_server_and_several_sources_give_their_mean(folder):
    here = load_scorer("rubric", folder, device="cpu")
    row = {"image": RED, "caption": "A dog runs.", "rubric": RUBRIC}
    with loopback_judge(here.judge.model, here.judge.writer.processor) as server:
        scorer = load_scorer("rubric", f"{folder},{server.endpoint}")
        assert [type(judge) for judge in scorer.judges] == [LocalJudge, ServerJudge]
        assert scorer.score([row]).scores == pytest.approx(here.score([row]).scores, abs=2e-3)
        quick = load_scorer("rubric", server.endpoint, timeout=9.0, retries=2)
        assert (quick.judge.timeout, quick.judge.retries) == (9.0, 2)
        explained = load_scorer("rubric", server.endpoint, explain=True).score([row])
        assert explained.errors == {}
        assert explained.texts["explanation"] != [None]
    with pytest.raises(ConfigError, match="a model on this machine has no setting 'concurrency'"):
        load_scorer("rubric", folder, concurrency=2)


FACTS = [{"fact": "A dog runs.", "weight": 3}, "A cat sleeps.", {"text": "A bird sings.", "weight": -1}]


@pytest.mark.parametrize(
    ("caption", "options", "scores", "wrong", "missing", "questions"),
    [
        ("A dog runs. A cat flies.", {}, [0.5, 0.5], "A cat flies.", "A cat sleeps.", 4),
        ("A dog runs. A dog runs.", {}, [0.9, 0.5], "", "A cat sleeps.", 3),
        ("A dog runs.", {"aspects": ["precision"]}, [0.9], "", None, 1),
        ("A dog runs.", {"aspects": ["coverage"]}, [0.5], None, "A cat sleeps.", 2),
        ("A dog runs.", {"column": "facts"}, [0.9, (2.7 + 0.1 - 0.1) / 4], "", "A cat sleeps.", 4),
        ("Hello.", {"split": "judge"}, [0.0, 0.1], "", "A dog runs.\nA cat sleeps.", 3),
        ("A dog and a cat.", {"split": "judge"}, [0.5, 0.1], "It has a cat.", "A dog runs.\nA cat sleeps.", 5),
    ],
)
def test_claims_are_precision_and_coverage_with_what_failed(caption, options, scores, wrong, missing, questions):
    def distribution(asked):
        *captions, statement = re.findall("(?:> .*\n)+", asked.text)
        is_right = statement.strip() in captions[0] if captions else "dog" in statement
        assert (asked.image is None) == bool(captions), "a caption is compared with facts alone"
        return {"Yes": 0.9, "No": 0.1} if is_right else {"Yes": 0.1, "No": 0.9}

    listed = "It says:\n\n- It has a dog.\n2. It has a cat.\n- It has a dog."
    judge = RecordingJudge("None." if caption == "Hello." else listed, distribution)
    scorer = load_scorer("claims", judge, **options)
    references = ["A dog runs. A cat sleeps.", "A cat sleeps."]
    sample = CaptionSample(caption, RED, references, columns={"facts": FACTS})
    table = scorer.score([sample, sample])
    assert table.scores == pytest.approx(np.array([scores, scores]))
    assert table.texts.get("wrong_claims", [None])[0] == wrong
    assert table.texts.get("missing_facts", [None])[0] == missing
    assert len(judge.asked) == questions


def test_a_claim_of_several_captions_is_asked_about_once_an_image():
    judge = RecordingJudge(distribution={"Yes": 0.9, "No": 0.1})
    images = [RED, Image.new("RGB", (16, 16), "blue")]
    samples = [CaptionSample(f"A dog. {word} cats.", image) for image in images for word in ("Two", "Six", "No")]
    table = load_scorer("claims", judge, aspects=["precision"]).score(samples)
    assert table.scores == pytest.approx(0.9)
    assert len(judge.asked) == 8


@pytest.mark.parametrize(
    ("options", "reply", "message"),
    [
        ({"aspects": ["recall"]}, "", r"aspects must be a list of precision and coverage, got \['recall'\]"),
        ({"split": "words"}, "", "split must be 'sentences' or 'judge', got 'words'"),
        ({"split": "judge"}, Answer("- A dog", truncated=True), "raise max_new_tokens="),
        ({"split": "judge"}, "<think>- A dog</think>", "the judge listed no claims"),
        ({"column": "facts"}, "", r'the row has no facts; write \["A dog runs."'),
        ({}, "", "needs references"),
    ],
)
def test_claims_says_what_it_lacks(options, reply, message):
    judge = RecordingJudge(reply, {"Yes": 0.9, "No": 0.1})
    references = ["A dog runs."] if "split" in options else []
    try:
        reason = load_scorer("claims", judge, **options).score([CaptionSample("A dog.", RED, references)]).errors[0]
    except ConfigError as error:
        reason = str(error)
    assert re.search(message, reason)
