"""CaptionScorer: groups, windows, images decoded once, reasons for missing scores, and the network's mode."""

import logging

import numpy as np
import pytest
import torch

from reward import CaptionSample
from reward.errors import ImageError
from reward.metrics import scorer as scorer_module
from reward.metrics.base import MetricSpec
from reward.metrics.scorer import CandidateScores, NetworkScorer
from tests.toys.pictures import png


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout, self.frozen = torch.nn.Dropout(), torch.nn.Dropout()
        self.device = torch.device("cpu")


class Toy(NetworkScorer):
    """Brightness of the image + number of words + number of references; records how it was called."""

    spec = MetricSpec("toy", "tests:Toy", ("sum", "words"), {"s": "sum"}, range=(0.0, np.inf))
    window_size = 3
    images_per_pass = 2
    reads_references = True

    def __init__(self):
        self.model = Network()
        self.encoded = []
        self.windows = []
        self.modes = []

    def preprocess(self, image):
        if image.width == 5:
            raise ImageError("5 pixels are too few")
        return float(np.asarray(image).mean())

    def encode_images(self, images):
        self.encoded.append(len(images))
        return images

    def score_groups(self, groups, batch_size):
        self.modes.append((self.model.training, torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")))
        rows = [(group, caption, len(caption.split())) for group in groups for caption in group.rows]
        self.windows.append((len(rows), batch_size))
        scores = [[group.features + words + len(group.references), words] for group, _, words in rows]
        errors = {}
        for place, (_, caption, _) in enumerate(rows):
            if caption == "nan":
                scores[place][0] = np.nan
            if caption == "bad":
                errors[place] = "a bad caption"
        return CandidateScores(scores, [words > 4 for *_, words in rows], errors)


def test_every_image_is_decoded_and_encoded_once_whatever_comes_between(monkeypatch):
    loaded = []
    load = scorer_module.load_image
    monkeypatch.setattr(scorer_module, "load_image", lambda image: loaded.append(image) or load(image))
    brightness = {"black": 0.0, "white": 255.0, "red": 85.0}
    cases = [(words, colour) for words in range(1, 6) for colour in brightness]
    samples = [CaptionSample("x " * words, png(colour), ["r"] * (words % 2)) for words, colour in cases]
    expected = [[brightness[colour] + words + words % 2, words] for words, colour in cases]
    toy = Toy()
    table = toy.score(samples, batch_size=1)
    assert table.scores.tolist() == expected
    assert table.column("s").tolist() == table.scores[:, 0].tolist()
    assert (len(loaded), toy.encoded, toy.windows) == (3, [1, 1, 1], [(3, 1)] * 5)
    toy = Toy()
    toy.window_size = 100
    assert toy.score(samples).scores.tolist() == expected
    assert (toy.encoded, toy.windows) == ([2, 1], [(15, None)])


def test_scores_of_another_shape_are_refused(monkeypatch):
    monkeypatch.setattr(Toy, "score_groups", lambda *_: CandidateScores([[1.0, 2.0]]))
    with pytest.raises(ValueError, match=r"must give scores \(2, 2\), got \(1, 2\)"):
        Toy().score([CaptionSample("a", png("black")), CaptionSample("b", png("black"))])


def test_samples_without_a_score_have_a_reason_and_the_others_a_score():
    black, small = png("black"), png("black", (5, 5))
    rows = [("fine", black), ("none", None), ("absent", "absent.png"), ("broken", b"broken")]
    rows += [("small", small), ("nan", black), ("bad", black), ("small as well", small), ("fine too", black)]
    table = Toy().score([CaptionSample(*row) for row in rows])
    assert np.isnan(table.scores[:, 0]).tolist() == [False, *[True] * 7, False]
    assert np.isnan(table.scores[:, 1]).tolist() == [False, *[True] * 4, False, True, True, False]
    assert table.scores[[0, 8]].tolist() == [[1, 1], [2, 2]]
    assert "absent.png" in table.errors.pop(2)
    assert "not an image" in table.errors.pop(3)
    assert table.errors == {
        1: "metric 'toy' needs an image, but the sample has none",
        4: "5 pixels are too few",
        5: "metric 'toy' gave a score that is not finite",  # the aspect that is finite is kept
        6: "a bad caption",
        7: "5 pixels are too few",
    }


def test_cut_texts_are_flagged_and_counted_in_one_warning(caplog):
    texts = ("a b c d e", "a", "b b b b b b", "a b c d e", "c")
    with caplog.at_level(logging.WARNING, logger="reward"):
        table = Toy().score([CaptionSample(text, png("black")) for text in texts])
    assert table.truncated.tolist() == [True, False, True, True, False]
    assert caplog.messages == ["toy: 3 of 5 samples were cut to fit the model"]


def test_the_network_scores_in_eval_mode_without_autocast_and_gets_its_own_mode_back():
    toy = Toy()
    toy.model.train()
    toy.model.frozen.eval()
    with torch.autocast("cpu", torch.bfloat16):
        toy.score([CaptionSample("a", png("black"))])
        assert torch.is_autocast_enabled("cpu")
    assert toy.modes == [(False, True, False)]
    assert (toy.model.training, toy.model.dropout.training, toy.model.frozen.training) == (True, True, False)
    assert torch.is_grad_enabled()
