"""Replies as judges write them, and what judged metrics make of them: scripted, by a server, by a small model.

In a reply `«...»` is the answer. The token there has .8 and another answer .2; at all other tokens the digits 1 and 5,
Yes and No, and the letters A and B are alternatives, too, which must not count.
"""

import json
import math
import re

import pytest
from PIL import Image

from reward import CaptionSample, load_scorer
from reward.judges import Answer, LocalJudge, Question, ScriptedJudge, ServerJudge
from reward.judges.pairwise import JudgePair, PairPrompt, PairwiseJudge
from tests.toys.loopback_http import send, serving
from tests.toys.rating_judges import marking_llava
from tests.toys.toy_judges import plain_inputs, plain_pass, spellings

RED = Image.new("RGB", (8, 8), "red")
COLUMNS = {"rubric": ["It is short."], "questions": [{"question": "q", "answer": "B", "choices": ["cat", "dog"]}]}
SAMPLE = CaptionSample("A dog.", RED, ["A dog runs."], columns=COLUMNS)
SEVERAL = "several different"
NONE = "the answer is not one of"

GRADES = [
    *(
        "«4»",
        " «4»\n",
        "«4».",
        "**«4»**",
        "*«4»*",
        "__«4»__",
        "`«4»`",
        '"«4»"',
        "'«4»'",
        "\u201c«4»\u201d",
        "(«4»)",
        "[«4»]",
    ),
    *("# «4»", "«4»/5", "«4» / 5", "**«4»**/5", "«4» out of 5", "«4» of 5", "«4» stars", "«4» Punkte", "- «4»", "~«4»"),
    *("Grade: «4»", "**Grade:** «4»", "Grade = «4»", "My grade: «4»", "I rate this caption a «4».", "Score «4»"),
    *("The scale is 1 to 5. My grade: «4»", "On a scale of 1-5, I give it «4».", "There is 1 error. Grade: «4»"),
    *("2 dogs are there, and 1 cat. Grade: «4»", "1. It names the dog.\n2. It is short.\nGrade: «4»", "Note : «4»"),
    *(
        "1) Right.\n2) Short.\n\n«4»",
        "It is good.\n\n«4»",
        "«4», because 2 of 3 dogs are there",
        "«4»\n\n1 error is left.",
    ),
    *('{"grade": «4»}', '{"grade": "«4»"}', '```json\n{"score": «4»}\n```', "$\\boxed{«4»}$", "\\(\\boxed{«4»}\\)"),
    *("<answer>«4»</answer>", "<think>1? 2?</think>«4»", "<think>Grade: 1</think>\nGrade: «4»", "> Grade: 1\n«4»"),
    *(
        "\u8bc4\u5206\uff1a«4»",
        "\u0e04\u0e30\u0e41\u0e19\u0e19: «4»",
        "\uff08«4»\uff09",
        "«\uff14»",
        "«\u0664»",
        "\u5f97\u5206\uff1a«\uff14»\uff0f\uff15",
    ),
    "Final grade: «4». First I thought of 2.",
]
NO_GRADES = {
    "1,000": "from 1 to 5, got 1000",
    "10": "from 1 to 5, got 10",
    "4/10": "must be out of 5",
    "80%": "must be out of 5",
    "3-4": "a range",
    "3 to 4": "a range",
    "3 or 4": "a range",
    "Between 3 and 4.": "a range",
    "Grade: 3, maybe 4": "a range",
    "Grade: 3. Grade: 4.": SEVERAL,
    "3\n\nGrade: 4": SEVERAL,
    "3.5": "must be one of 1, 2, 3, 4, 5, got 3.5",
    "-4": "from 1 to 5, got -4",
    "I cannot grade this image.": "holds no number",
    "There is 1 error.": "holds no number",
    "": "holds no number",
    "The scale is 1 to 5.": "holds no number",
    "<think>Grade: 4": "holds no number",
}
YES = [
    *(
        "«Yes»",
        "«Yes».",
        "**«Yes»**",
        '"«Yes»"',
        "«yes»",
        "«YES»",
        "(«Yes»)",
        "Answer: «Yes»",
        "The answer is «yes».",
        "«Yes», it is.",
    ),
    *(
        "Yes or No? «Yes»",
        "No errors are seen. Answer: «Yes»",
        '{"answer": "«yes»"}',
        "\\boxed{«Yes»}",
        "It is short.\n\n«Yes»",
    ),
    *("<think>No.</think>«Yes»", "> No.\n«Yes»", "\u7b54\u6848\uff1a«Yes»", "- «Yes»"),
]
NO_YES = {
    "Yes.\nNo.": SEVERAL,
    "Answer: Yes or No": "gives two",
    "I cannot tell.": NONE,
    "Yes or no? I cannot tell.": NONE,
    "No dog is here, but ...": NONE,
}
LETTERS = [
    *(
        "«B»",
        "«B».",
        "(«B»)",
        "(«b»)",
        "«b»",
        "**«B»**",
        "[«B»]",
        "«B». dog",
        "«B») dog",
        "Letter: «B»",
        "The answer is («B»).",
    ),
    *("A dog is seen. Answer: «B»", '{"answer": "«B»"}', "\\boxed{\\text{«B»}}", "<answer>«B»</answer>", "Option «B»"),
]
NO_LETTERS = {"A or B": NONE, "Answer: A. Answer: B.": SEVERAL, "A dog.": NONE, "Neither.": NONE}
DECIMALS = [
    *("«0.85»", "**«0.85»**", '"«0.85»"', "Score: «0.85»", "«0.85»/1.0", "The scale is 0.0 to 1.0. My score: «0.85»"),
    *("There is 1 error. Score: «0.85»", "\\boxed{«0.85»}", '{"score": «0.85»}', "<think>0.2?</think>«0.85»"),
]
NO_DECIMALS = {
    "0.7-0.8": "a range",
    "8.5/10": "must be out of 1",
    "85%": "must be out of 1",
    "Good.": "holds no number",
}
NUMBERS = [
    *("85", "**85**", "85/100", "85%", "85 out of 100", "Grade: 85", "The scale is 0 to 100. Grade: 85", "\\boxed{85}"),
    *("2 dogs. Grade: 85", "85.0", "\uff18\uff15", '"85"'),
]
NO_NUMBERS = {
    "90-95": "a range",
    "1,000": "from 0 to 100, got 1000",
    "8/10": "must be out of 100",
    "80. Grade: 90": SEVERAL,
}

OTHER = {"4": "2", "Yes": "No", "yes": "no", "YES": "NO", "B": "A", "b": "a", "\uff14": "\uff12", "\u0664": "\u0662"}


def reply_of(marked):
    """An answer with its tokens: words, single digits, and single other characters."""
    start, text = marked.find("«"), marked.replace("«", "").replace("»", "")
    end = marked.find("»") - 1
    decoys = {"1": 0.05, "5": 0.05, "Yes": 0.05, "No": 0.05, "A": 0.05, "B": 0.05}
    tokens, rows = [], []
    for match in re.finditer(r"[^\W\d_]+|.", text, re.DOTALL):
        token, is_answer = match[0], start <= match.start() < end
        row = {token: 0.8, OTHER.get(token, "2"): 0.2} if is_answer else {token: 0.6} | decoys
        if "." in text[start:end] or token.isspace():
            row = {token: 1.0, "?": 1e-12}
        tokens.append(token)
        rows.append({alternative: math.log(share) for alternative, share in row.items()})
    return Answer(text, (*tokens, "</s>"), (*rows, {"</s>": 0.0, "?": -20.0}))


def completion(answer):
    content = [
        {
            "token": token,
            "logprob": row[token],
            "top_logprobs": [{"token": other, "logprob": value} for other, value in row.items()],
        }
        for token, row in zip(answer.tokens, answer.logprobs, strict=True)
    ]
    choice = {"index": 0, "finish_reason": "stop", "logprobs": {"content": content}}
    choice["message"] = {"role": "assistant", "content": answer.text}
    return {"model": "tiny", "choices": [choice], "usage": {"prompt_tokens": 400, "completion_tokens": 1}}


@pytest.fixture(scope="module")
def server():
    state = {}

    def answer(handler, body):
        send(handler, json.dumps(completion(state["answer"])).encode())

    with serving(answer) as address:
        state["judge"] = ServerJudge("tiny", f"{address}/v1", retries=0)
        yield state


@pytest.fixture(params=["scripted", "server"])
def judge_of(request, server):
    def make(marked):
        if request.param == "scripted":
            return ScriptedJudge(lambda question: reply_of(marked))
        server["answer"] = reply_of(marked)
        return server["judge"]

    return make


def score(name, judge, **options):
    table = load_scorer(name, judge, **options).score([SAMPLE])
    return table.errors[0] if table.errors else table.scores[0, 0]


def verdict(judge, answers):
    prompt = PairPrompt.of()
    fields = {**prompt.to_json(), "answers": answers}
    return PairwiseJudge(judge, reasons=False, both_orders=False, prompt=fields).compare([JudgePair("a", "b", RED)])[0]


@pytest.mark.parametrize("marked", GRADES)
def test_a_grade_is_weighed_where_it_stands(marked, judge_of):
    assert score("judge", judge_of(marked)) == pytest.approx((0.8 * 4 + 0.2 * 2 - 1) / 4)
    assert score("harmoniceval", judge_of(marked), criteria=["fluency"]) == pytest.approx(0.8 * 4 + 0.2 * 2)


@pytest.mark.parametrize(("text", "reason"), NO_GRADES.items())
def test_a_reply_without_one_grade_says_why(text, reason, judge_of):
    assert reason in score("judge", judge_of(text))
    assert reason in score("harmoniceval", judge_of(text), criteria=["fluency"])


@pytest.mark.parametrize("marked", YES)
def test_a_yes_is_weighed_where_it_stands(marked, judge_of):
    assert score("vqascore", judge_of(marked)) == pytest.approx(0.8)
    assert score("rubric", judge_of(marked)) == pytest.approx(0.8)
    assert score("judge", judge_of(marked), prompt="yes") == pytest.approx(0.8)


@pytest.mark.parametrize(("text", "reason"), NO_YES.items())
def test_a_reply_without_yes_or_no_says_why(text, reason, judge_of):
    for name in ("vqascore", "rubric"):
        assert reason in score(name, judge_of(text))


@pytest.mark.parametrize("marked", LETTERS)
def test_a_letter_is_weighed_where_it_stands(marked, judge_of):
    assert score("questions", judge_of(marked)) == pytest.approx(0.8)
    assert verdict(judge_of(marked), ["A", "B", "C"]).probabilities == pytest.approx((0.2, 0.8, 0.0))


@pytest.mark.parametrize(("text", "reason"), NO_LETTERS.items())
def test_a_reply_without_one_letter_says_why(text, reason, judge_of):
    assert reason in score("questions", judge_of(text))
    assert reason in verdict(judge_of(text), ["A", "B", "C"]).error


@pytest.mark.parametrize("marked", DECIMALS)
def test_decimals_are_smoothed_where_they_stand(marked, judge_of):
    assert score("fleur", judge_of(marked)) == pytest.approx(0.85)


@pytest.mark.parametrize(("text", "reason"), NO_DECIMALS.items())
def test_a_reply_without_decimals_says_why(text, reason, judge_of):
    assert reason in score("fleur", judge_of(text))


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_is_read_where_it_stands(text, judge_of):
    assert score("judge", judge_of(text), prompt="grade100") == pytest.approx(0.85)
    assert score("clair", judge_of(json.dumps({"score": text.strip('"')}))) == pytest.approx(0.85)


@pytest.mark.parametrize(("text", "reason"), NO_NUMBERS.items())
def test_a_reply_without_one_number_says_why(text, reason, judge_of):
    assert reason in score("judge", judge_of(text), prompt="grade100")


@pytest.mark.parametrize("before", ["*", "(", '"', "#"])
def test_a_model_on_this_machine_is_read_where_its_grade_stands(before):
    model, processor = marking_llava(before)
    judge = LocalJudge(model, processor)
    question = Question("How good?", image=RED)
    (reply,) = judge.generate([question], max_new_tokens=8)
    assert reply.text[0] == before
    assert reply.text[1:] in list("12345")
    plain = plain_pass(model, **plain_inputs(processor, question, before))
    expected = [float(sum(plain[token] for token in same)) for same in spellings(processor, "12345")]
    assert judge.weigh([question], list("12345"))[0] == pytest.approx(expected, abs=1e-5)
    assert judge.weigh([question], list("12345"))[0].argmax() + 1 == int(reply.text[1:])
