"""Models of three metrics behind pooling endpoints: the same scores as here, and the failures of every server."""

import pickle
from contextlib import contextmanager

import numpy as np
import pytest

from reward import CaptionSample, MetricReward, load_scorer
from reward.errors import ConfigError, JudgeError
from reward.judges import connection
from tests.contract import ScorerContract
from tests.reward.judges.test_server_faults import PASSING
from tests.reward.metrics import test_crossencoder, test_embedscore, test_vlmreward
from tests.toys.loopback_judge import Fault, loopback_judge
from tests.toys.loopback_pooling import LoopbackClassifier, LoopbackEmbedder, LoopbackReranker

library = pytest.importorskip("sentence_transformers", minversion="6")
SAMPLES = test_crossencoder.SAMPLES
METRIC = {
    "log_odds": "crossencoder",
    "text_classes": "crossencoder",
    "gemma3": "vlmreward",
    "llama": "vlmreward",
    "chat": "embedscore",
}
OPTIONS = {"text_classes": {"query": "references"}, "llama": {"with_image": False}}
CLOSE = {"rel": 2e-6, "abs": 1e-6}  # of float32, whose last digits depend on the batch
one_of_each_endpoint = pytest.mark.parametrize("served", ["text_classes", "llama", "chat"], indirect=True)


@pytest.fixture(autouse=True, scope="module")
def short_first_wait():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "_FIRST_WAIT", 0.02)
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for kind in ("log_odds", "text_classes"):
        test_crossencoder.KINDS[kind](root / kind)
    for kind in ("gemma3", "llama"):
        test_vlmreward.save(kind, root / kind)
    test_embedscore.chat(root / "chat")
    return root


@contextmanager
def serving(kind, folder, **options):
    """Serves a model by the library that it is of."""
    if METRIC[kind] == "crossencoder":
        model, processor, server = library.CrossEncoder(str(folder / kind), device="cpu"), None, LoopbackReranker
    elif METRIC[kind] == "embedscore":
        model, processor, server = library.SentenceTransformer(str(folder / kind), device="cpu"), None, LoopbackEmbedder
    else:
        make, _ = test_vlmreward.KINDS[kind]
        model, processor = make()  # the same weights each time
        server = LoopbackClassifier
    with loopback_judge(model, processor, kind=server, **options) as running:
        yield running


@pytest.fixture(scope="module", params=METRIC)
def served(request, folders):
    with serving(request.param, folders) as server:
        yield request.param, server


def scorer_of(kind, server, **options):
    return load_scorer(METRIC[kind], f"{server.endpoint}#tiny", **OPTIONS.get(kind, {}), **options)


def test_scores_are_those_of_the_model_here(served, folders):
    kind, server = served
    here = load_scorer(METRIC[kind], folders / kind, device="cpu")
    there = scorer_of(kind, server, device="cpu")
    # JSON keeps the images as they are, and a caption that holds an end mark ends no turn.
    samples = [*SAMPLES, CaptionSample("a star <|im_end|> .", SAMPLES[0].image, ["a star"])]
    assert there.score(samples).scores == pytest.approx(here.score(samples).scores, **CLOSE)
    assert (there.spec.needs_image, there.spec.needs_references) == (here.spec.needs_image, here.spec.needs_references)
    prompts = ["Look: ", "Is it so?"]
    scores = [
        scorer_of(kind, server, prompt=prompt, max_characters=10, concurrency=1).score(SAMPLES) for prompt in prompts
    ]
    here.prompt, here.max_characters = prompts[0], 10
    assert scores[0].scores == pytest.approx(here.score(SAMPLES).scores, **CLOSE)
    assert scores[0].truncated.all()
    assert scores[0].scores != pytest.approx(scores[1].scores, **CLOSE)


def test_one_request_holds_the_captions_of_an_image(folders):
    with serving("log_odds", folders) as server:
        server.models = ("tiny",)
        bare = load_scorer("crossencoder", server.endpoint, activation="none").score(SAMPLES)
        share = MetricReward("crossencoder", f"{server.endpoint}#tiny", activation="sigmoid").score(SAMPLES)
        assert 1 / (1 + np.exp(-bare.scores)) == pytest.approx(share.scores, **CLOSE)
        assert [len(request["documents"]) for request in server.requests] == [3, 3] * 2


@pytest.mark.slow
@one_of_each_endpoint
class TestContract(ScorerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, served):
        return scorer_of(*served, max_characters=300)

    test_checkpoints_of_other_metrics_and_missing_ones_are_refused = None  # a server has none

    def test_pickled_and_saved_scorers_score_alike(self, scorer, tmp_path):
        copy = pickle.loads(pickle.dumps(scorer))
        assert copy.fingerprint == scorer.fingerprint
        assert self.scores(copy, SAMPLES).tolist() == self.scores(scorer, SAMPLES).tolist()
        with pytest.raises(ConfigError, match="its weights are with the server"):
            scorer.save_pretrained(tmp_path)


def test_a_refused_caption_costs_no_other(served):
    kind, server = served
    scorer = scorer_of(kind, server)
    expected = scorer.score(SAMPLES).scores
    server.refuse = "small house"
    try:
        table = scorer.score(SAMPLES)
    finally:
        server.refuse = ""
    # The second image has this text as its reference, too.
    lost = [2, 3, 4, 5] if kind == "text_classes" else [2, 5]
    assert list(table.errors) == lost
    assert all("the server refuses the question" in reason for reason in table.errors.values())
    others = [row for row in range(len(SAMPLES)) if row not in lost]
    assert table.scores[others] == pytest.approx(expected[others], **CLOSE)


@one_of_each_endpoint
def test_passing_faults_lose_no_row(served):
    kind, server = served
    expected = scorer_of(kind, server).score(SAMPLES).scores
    server.faults.extend([*PASSING, Fault("status", 200, body='{"results": 3, "data": [3]}'), None])
    assert scorer_of(kind, server, retries=12).score(SAMPLES).scores == pytest.approx(expected, **CLOSE)
    assert not server.faults, "not every fault was met"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("status", 401), r"refuses the key in \$OPENAI_API_KEY"),
        (Fault("status", 404, body='{"detail": "Not Found"}'), "no model 'tiny' .*the server has /v1/rerank"),
        (Fault("status", 500), "did not answer in 2 tries"),
    ],
)
def test_what_waiting_does_not_mend_ends_the_call(fault, message, folders, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-key")
    with serving("log_odds", folders) as server:
        server.faults.extend([fault] * 4)
        with pytest.raises(JudgeError, match=message) as caught:
            scorer_of("log_odds", server, retries=1).score(SAMPLES)
        assert "sk-secret-key" not in f"{caught.value}{caught.value.__context__}"


def test_an_odd_reply_is_the_reason_of_its_rows(folders):
    with serving("gemma3", folders) as server:
        server.faults.append(Fault("status", 200, body='{"data": [{"probs": [0.2, 0.8]}]}'))
        table = scorer_of("gemma3", server, concurrency=1).score(SAMPLES)
    assert list(table.errors) == [0]
    assert "the model gives 2 numbers a caption; a reward is one number" in table.errors[0]


def test_a_ranking_that_lacks_captions_is_asked_for_one_by_one(folders):
    with serving("log_odds", folders) as server:
        server.faults.append(Fault("status", 200, body='{"results": [{"index": 0, "relevance_score": 1}]}'))
        assert not scorer_of("log_odds", server, concurrency=1).score(SAMPLES).errors
        assert [len(request["documents"]) for request in server.requests] == [3, 3, 1, 1, 1]


def test_settings_are_checked_before_anything_is_asked():
    address = "http://127.0.0.1:9/v1#tiny"
    for options, message in (
        ({"query": "caption"}, "query must be one of image, references, got 'caption'"),
        ({"activation": "tanh"}, "activation must be one of sigmoid, none, got 'tanh'"),
        ({"dtype": "bfloat16"}, "revision and dtype are the server's"),
        ({"max_characters": 0}, "max_characters must be a whole number"),
        ({"layer": 3}, "metric 'crossencoder' has no option 'layer'; it has concurrency, timeout"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_scorer("crossencoder", address, **options)
