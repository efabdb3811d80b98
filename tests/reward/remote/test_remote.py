"""RemoteScorer and RemoteReward against a service with faults on demand."""

import pickle
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from reward import CaptionSample, MetricReward, RemoteReward, load_scorer
from reward.errors import ConfigError, OutputError, ServiceError, WeightsError
from reward.remote import client
from reward.remote.scorer import RemoteScorer
from reward.scoring.dataset import score_dataset
from tests.toys.fake_service import FakeService, fake_service
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.loopback_http import certificate, serving

pytestmark = pytest.mark.slow

WIDE = Image.new("RGB", (5, 2), "red")


@pytest.fixture(autouse=True)
def short_rests(monkeypatch):
    """A service that failed is left alone for a tenth of the time."""
    monkeypatch.setattr(client, "_FIRST_REST", 0.05)


@pytest.fixture
def service():
    with fake_service() as fake:
        yield fake


@pytest.fixture
def other():
    with fake_service() as fake:
        yield fake


def scorer_of(*services, **settings):
    return RemoteScorer([service.url for service in services], **{"timeout": 0.5, "patience": 10.0, **settings})


def samples_of(*captions, image=WIDE):
    return [CaptionSample(caption, image) for caption in captions]


def of_widths(count, caption="a"):
    return [CaptionSample(caption, Image.new("RGB", (width, 2))) for width in range(1, count + 1)]


def test_captions_of_an_image_go_together_up_to_the_limit_and_the_image_goes_once(service):
    samples = [*samples_of("a", "a b"), *of_widths(1), *samples_of("a", "a b c", "a a a a", image=WIDE.copy())]
    assert scorer_of(service).score(samples).scores.tolist() == [[1, 5], [2, 5], [1, 1], [1, 5], [3, 5], [4, 5]]
    asked = sorted(request["samples"][0]["candidates"] for request in service.requests)
    assert asked == [["a"], ["a", "a b", "a b c"], ["a a a a"]]
    noise = Image.effect_noise((400, 400), 90).convert("RGB")
    assert "--max-body" in scorer_of(service).score(samples_of("a", image=noise)).errors[0]


def test_an_image_below_the_shared_root_goes_by_path(service, tmp_path):
    (tmp_path / "in").mkdir()
    WIDE.save(tmp_path / "in" / "a.png")
    scorer_of(service, image_root=tmp_path).score(samples_of("a", image=tmp_path / "in" / "a.png"))
    assert service.requests[0]["samples"][0]["image"] == {"path": "in/a.png"}
    sent = scorer_of(service, image_root=tmp_path / "in").score(samples_of("a"))
    assert sent.scores.tolist() == [[1, 5]]


def test_what_cannot_be_scored_says_why(service):
    samples = [*samples_of("bad", "a long one"), CaptionSample("a", "no-such.png")]
    table = scorer_of(service).score(samples)
    assert np.isnan(table.scores).all(axis=1).tolist() == [True, False, True]
    assert (table.errors[0], "does not exist" in table.errors[2]) == ("a bad caption", True)
    assert table.truncated.tolist() == [False, True, False]


@pytest.mark.parametrize("fault", ["drop", "hang", "garble", (500, "x"), (502, "<html>"), (503, "full"), (429, "full")])
def test_a_passing_fault_is_tried_again(service, fault):
    service.faults.extend([fault, fault])
    assert scorer_of(service).score(samples_of("a")).scores.tolist() == [[1, 5]]


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (422, '{"error": "too many \\u001b[2Jpixels"}', "the service refuses"),
        (200, '{"identity":"first","samples": [{"scores": [[1, 5]], "errors": [], "truncated": []}]}', "be read"),
        (
            200,
            '{"identity": "first", "samples": [{"scores": [[1]], "errors": [null], "truncated": [false]}]}',
            "be read",
        ),
    ],
)
def test_a_refusal_is_not_tried_again(service, status, body, reason):
    service.faults.append((status, body))
    assert reason in scorer_of(service).score(samples_of("a")).errors[0]
    assert not service.requests


def test_waiting_behind_our_own_requests_does_not_count_as_down_time(service):
    answer = service.answer
    service.answer = lambda request: time.sleep(0.06) or answer(request)
    scorer = scorer_of(service, timeout=5.0, patience=0.5, concurrency=2)
    assert scorer.score(of_widths(20)).errors == {}


def test_a_request_that_three_services_died_of_is_given_up_and_harms_no_other(service):
    """A service that dies breaks all connections; a request whose connection broke is sent again by itself."""
    answer, inside, beside_deaths = service.answer, [0], list[int]()

    def answer_or_die(request):
        inside[0] += 1
        time.sleep(0.05)
        others = inside[0] - 1
        inside[0] -= 1
        if "die" in str(request):
            beside_deaths.append(others)
        if "die" in str(request) or (len(beside_deaths) == 1 and others):
            raise OSError  # the connection breaks
        return answer(request)

    service.answer = answer_or_die
    samples = of_widths(6)
    samples[2] = CaptionSample("die", samples[2].image)
    table = scorer_of(service, timeout=5.0, patience=60.0).score(samples)
    told = "the service refuses: 3 services died, one after another, while they scored this request"
    assert table.errors == {2: told}
    assert table.scores[:, 1].tolist()[3:] == [4, 5, 6]
    assert beside_deaths[1:] == [0, 0]


def test_a_connection_that_breaks_before_a_service_is_well_is_no_death(service):
    scorer = scorer_of(service, timeout=5.0, patience=60.0)
    scorer.connect()
    service.faults.append("drop")  # then two checks of its health fail: a port that is open, and nothing behind it
    service.is_sick = 2
    assert scorer.score(samples_of("a")).errors == {}
    assert service.is_sick == 0


def test_after_its_patience_a_row_has_no_score_and_the_next_call_does_not_wait_again(service):
    scorer = scorer_of(service, patience=1.0)
    scorer.connect()
    service.is_down = True
    assert "cannot be reached" in scorer.score(samples_of("a")).errors[0]
    time.sleep(0.1)
    start = time.monotonic()
    assert "cannot be reached" in scorer.score(samples_of("a", "b", "c", "d")).errors[0]
    assert time.monotonic() - start < 0.5
    service.is_down = False
    end = time.monotonic() + 30
    while scorer.score(samples_of("a")).errors:  # it is asked again after its rest
        assert time.monotonic() < end


def test_one_replica_has_an_image_and_another_answers_while_it_is_down(service, other):
    scorer = scorer_of(service, other)
    for caption in "abcdef":
        scorer.score(samples_of(caption))
    assert sorted([len(service.requests), len(other.requests)]) == [0, 6]
    down, up = (service, other) if service.requests else (other, service)
    down.is_down = True
    for caption in "abcdef":
        assert scorer.score(samples_of(caption)).errors == {}
    assert len(up.requests) == 6
    assert len(down.tokens) < 12  # it is left alone between tries


@pytest.mark.parametrize("given", ["environment", "argument"])
def test_a_token_is_sent_and_never_shown(given, service, monkeypatch):
    options = {"api_key": "secret-token"} if given == "argument" else {}
    monkeypatch.setenv("CAPREWARD_TOKEN", "another" if options else "secret-token")
    rewards = [RemoteReward(service.url, **options), MetricReward("made-up", service.url, **options)]
    for reward in [*rewards, pickle.loads(pickle.dumps(rewards[0]))]:
        assert call(reward, "a") == [3.0]
        assert "secret-token" not in f"{reward!r} {reward.__name__} {reward.__dict__.get('scorer')!r}"
    assert {*service.tokens} == {"Bearer secret-token"}
    service.faults.append((401, "no secret-token here"))
    with pytest.raises(ServiceError, match="api_key= or in CAPREWARD_TOKEN") as caught:
        scorer_of(service, **options).score(samples_of("a"))
    assert "secret-token" not in str(caught.value)


def test_a_file_of_scores_keeps_no_key(service, tmp_path):
    rows = write_lines(tmp_path / "rows.jsonl", [{"candidate": "a b"}])
    score_dataset(rows, "made-up", tmp_path / "scores.jsonl", source=service.url, api_key="secret-token")
    assert service.tokens == ["Bearer secret-token"]
    assert not any(b"secret-token" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_of_ones_own_is_named_by_the_environment(tmp_path, monkeypatch):
    fake, file = FakeService(), certificate(tmp_path)
    with serving(fake.reply, file) as fake.url:
        with pytest.raises(ServiceError, match="certificate verify failed"):
            scorer_of(fake, patience=0.1).connect()
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert scorer_of(fake).score(samples_of("a b")).column("words").tolist() == [2.0]


def test_another_checkpoint_than_the_first_is_refused(service, other, tmp_path):
    """After a restart, by a copy for another process, by a scorer that pins it, by a file of scores, as a replica."""
    scorer, output = scorer_of(service), tmp_path / "scores.jsonl"
    assert scorer.score(samples_of("a")).errors == {}
    rows = write_lines(tmp_path / "rows.jsonl", [{"candidate": "a b"}])
    score_dataset(rows, "made-up", output, source=service.url)
    assert read_lines(output)[0]["words"] == 2.0
    other.facts["identity"] = service.facts["identity"] = "second"
    for asked in (scorer, pickle.loads(pickle.dumps(scorer)), scorer_of(other, identity="first")):
        with pytest.raises(ServiceError, match=r"second, not first\. Scores of two metrics must not be mixed"):
            asked.score(samples_of("a"))
    with pytest.raises(OutputError, match="other input, metric or settings"):
        score_dataset(rows, "made-up", output, source=service.url)
    service.facts["identity"] = "first"
    with pytest.raises(ServiceError, match="must not be mixed"):
        scorer_of(service, other).connect()


def test_the_metric_is_found_or_named(service):
    loaded = load_scorer("made-up", service.url)
    assert (loaded.spec.name, loaded.spec.range, loaded.spec.aliases) == ("made-up", (0.0, np.inf), {"w": "words"})
    assert load_scorer(service.url).score(samples_of("a")).scores.tolist() == [[1, 5]]
    with pytest.raises(ServiceError, match="serves made-up, and not 'vela'"):
        load_scorer("vela", service.url)


@pytest.mark.parametrize(
    ("url", "key", "message"),
    [
        *((url, None, "address") for url in ("127.0.0.1:8123", "ftp://x", "http://user@x", "http://x?token=1", "")),
        *(("http://x", key, "^api_key= must be a text of ASCII letters") for key in ("", "one\ntwo", "gr\u00fcn", 3)),
    ],
)
def test_addresses_and_keys_that_cannot_be(url, key, message):
    with pytest.raises(ConfigError, match=message):
        RemoteReward(url, "vela", api_key=key)
    with pytest.raises(ConfigError, match="no token=: set CAPREWARD_TOKEN"):
        RemoteReward("http://x", "vela", token="secret")


def call(reward, *captions):
    return reward(prompts=["Describe."] * len(captions), completions=list(captions), image=[WIDE] * len(captions))


def test_a_reward_of_a_service(service):
    reward = RemoteReward(service.url, weights={"w": 3, "width": 1}, patience=0.3, timeout=0.5)
    assert call(reward, "a b", "...", "bad") == [0.75 * 2 + 0.25 * 5, 0.0, None]
    assert dict(reward.failures) == {"empty caption": 1, "not scored by the metric": 1}
    assert [aspect.__name__ for aspect in reward.aspects()] == ["made-up_w3_width1_words", "made-up_w3_width1_width"]
    service.is_down = True
    assert call(pickle.loads(pickle.dumps(reward)), "a b") == [None]


def test_calls_of_threads_go_on_beside_each_other(service):
    reward = RemoteReward(service.url, weights={"w": 1}, timeout=20.0)
    call(reward, "a")
    together, answer = threading.Barrier(6), service.answer
    service.answer = lambda request: together.wait(20) * 0 or answer(request)
    with ThreadPoolExecutor(6) as pool:
        rewards = list(pool.map(lambda number: call(reward, " ".join("a" * number)), range(1, 7)))
    assert rewards == [[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]]


def test_the_first_call_raises_where_there_is_no_service():
    reward = RemoteReward("http://127.0.0.1:9", "vela", {"rel": 1}, patience=0.1)
    assert reward.__name__ == "vela_rel"
    for ask in (reward.load, lambda: call(reward, "a")):
        with pytest.raises(ServiceError, match="no reward service"):
            ask()
    with pytest.raises(WeightsError, match="unknown aspect"):
        RemoteReward("http://127.0.0.1:9", "vela", {"no": 1})


def test_a_silent_service_is_told_of_while_it_is_waited_for_and_not_once_a_try(monkeypatch, caplog):
    monkeypatch.setattr(client, "_SILENCE", 0.1)
    monkeypatch.setattr(client, "_REMINDER", 0.25)
    with pytest.raises(ServiceError, match="no reward service"):
        RemoteReward("http://127.0.0.1:9", "vela", patience=0.75).load()
    assert 2 <= len(caplog.messages) <= 3
    assert caplog.messages[0].startswith("http://127.0.0.1:9 does not answer (ConnectError: ")
