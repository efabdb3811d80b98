"""BeitScoreTokenizer: both kinds of file behind one interface, cut captions, control tokens as text."""

import pickle

import pytest
import sentencepiece
from transformers import PreTrainedTokenizerFast, XLMRobertaTokenizer

from reward.errors import CheckpointError
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer
from tests.reward.metrics.beitscore.tiny_beitscore import TEXTS, make_fast, train_spm


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    path = tmp_path_factory.mktemp("spm") / "beit3.spm"
    path.write_bytes(train_spm())
    return {
        "spm": BeitScoreTokenizer.from_spm(path, max_tokens=100),
        "fast": BeitScoreTokenizer.from_fast(make_fast(), max_tokens=100),
    }


@pytest.fixture(params=["spm", "fast"])
def tokenizer(request, tokenizers):
    return tokenizers[request.param]


def test_spm_ids_are_those_of_transformers_xlm_r(tokenizers):
    processor = sentencepiece.SentencePieceProcessor(model_proto=train_spm())
    pieces = [(processor.id_to_piece(row), processor.get_score(row)) for row in range(3, processor.get_piece_size())]
    control = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    published = XLMRobertaTokenizer(vocab=[*control, *pieces, ("<mask>", 0.0)])
    for text in [*TEXTS, "A red star, a red circle and 3 zebras."]:
        assert tokenizers["spm"].encode([text])[0][0] == published(text).input_ids
    assert tokenizers["spm"].size == published.mask_token_id  # the mask token comes after the pieces


@pytest.mark.parametrize("attack", ["<s>", "</s>", "<pad>", "<mask>", "<end>", "<|im_end|>", "<tool>"])
def test_control_tokens_in_a_caption_stay_text(tokenizer, attack):
    (inside, without), _ = tokenizer.encode([f"A red star. {attack} A red star.", "A red star. A red star."])
    assert len(inside) > len(without) + 1  # several tokens of text, not one of control
    assert not {tokenizer.start, tokenizer.end, tokenizer.pad} & set(inside[1:-1])
    if tokenizer.start:  # the fast one, of which other control tokens are known
        assert set(inside[1:-1]).isdisjoint(make_fast().added_tokens_decoder)


def test_cut_at_the_position_table_and_not_at_77(tokenizer):
    rows, cut = tokenizer.encode(["red star " * count for count in range(1, 60)])
    lengths, first = [len(row) for row in rows], cut.index(True)
    assert 77 < lengths[first - 1] <= 100
    assert (lengths[first:], cut[first:]) == ([100] * len(rows[first:]), [True] * len(rows[first:]))
    assert rows[-1][: lengths[first - 1] - 1] == rows[first - 1][:-1]
    assert rows[-1][-1] == tokenizer.end


def test_saved_and_pickled_tokenizers_are_the_same(tokenizers, tmp_path):
    for kind, tokenizer in tokenizers.items():
        (tmp_path / kind).mkdir()
        tokenizer.save(tmp_path / kind)
        saved = BeitScoreTokenizer.from_folder(tmp_path / kind, max_tokens=100)
        for other in (saved, pickle.loads(pickle.dumps(tokenizer))):
            assert other.encode(TEXTS) == tokenizer.encode(TEXTS)
            assert (other.pad, other.size) == (tokenizer.pad, tokenizer.size)


NUMBERED = train_spm(vocab_size=40, pad_id=0, unk_id=3)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "found neither"),
        ({"tokenizer.json": b"{}"}, r"tokenizer.json'.* cannot be read"),
        ({"tokenizer.json": b"{}", "beit3.spm": b""}, "found beit3.spm and tokenizer"),
        ({"beit3.spm": b"no sentencepiece file"}, "not a readable sentencepiece file"),
        ({"beit3.spm": NUMBERED}, "its first pieces are <pad>"),
    ],
)
def test_unusable_files_are_refused(files, message, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        BeitScoreTokenizer.from_folder(tmp_path, max_tokens=10)


def test_a_fast_tokenizer_needs_start_and_end():
    fast = PreTrainedTokenizerFast(tokenizer_object=make_fast().backend_tokenizer, pad_token="<pad>")
    with pytest.raises(CheckpointError, match="needs bos_token, eos_token"):
        BeitScoreTokenizer.from_fast(fast, max_tokens=10)
