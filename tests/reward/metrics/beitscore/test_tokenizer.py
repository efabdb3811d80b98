"""BeitScoreTokenizer: both kinds of file behind one interface, cut captions, control tokens as text."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import sentencepiece
import torch
from transformers import PreTrainedTokenizerFast, XLMRobertaTokenizer

from reward.errors import CheckpointError
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer
from tests.reward.metrics.beitscore.tiny_beitscore import TEXTS, make_fast, train_spm


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BeitScoreTokenizer]:
    path = tmp_path_factory.mktemp("spm") / "beit3.spm"
    path.write_bytes(train_spm())
    return {
        "spm": BeitScoreTokenizer.from_spm(path, max_tokens=100),
        "fast": BeitScoreTokenizer.from_fast(make_fast(), max_tokens=100),
    }


@pytest.fixture(scope="module", params=["spm", "fast"])
def tokenizer(request: pytest.FixtureRequest, tokenizers: dict[str, BeitScoreTokenizer]) -> BeitScoreTokenizer:
    return tokenizers[request.param]


def test_spm_ids_are_those_of_transformers_xlm_r(tokenizers: dict[str, BeitScoreTokenizer]) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_proto=train_spm())
    pieces = [(processor.id_to_piece(row), processor.get_score(row)) for row in range(3, processor.get_piece_size())]
    control = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    published = XLMRobertaTokenizer(vocab=[*control, *pieces, ("<mask>", 0.0)])
    for text in [*TEXTS, "A red star, a red circle and 3 zebras."]:
        assert tokenizers["spm"].encode([text])[0][0] == published(text).input_ids
    assert tokenizers["spm"].size == published.mask_token_id  # the mask token comes after the pieces


def test_rows_are_padded_on_the_right(tokenizer: BeitScoreTokenizer) -> None:
    ids, padding, cut = tokenizer(["A red star.", "A red circle on a white ground."])
    rows, _ = tokenizer.encode(["A red star.", "A red circle on a white ground."])
    assert ids.dtype == torch.int64
    assert padding.dtype == torch.bool
    assert cut == [False, False]
    assert ids.shape == padding.shape == (2, len(rows[1]))
    assert ids[0, : len(rows[0])].tolist() == rows[0]
    assert set(ids[0, len(rows[0]) :].tolist()) == {tokenizer.pad}
    assert padding.sum(1).tolist() == [len(rows[1]) - len(rows[0]), 0]
    assert [rows[0][0], rows[0][-1]] == [tokenizer.start, tokenizer.end]


@pytest.mark.parametrize(
    "attack", ["</s>", "<s>", "<pad>", "<mask>", "<unk>", "<end>", "<start>", "<|im_end|>", "<tool>"]
)
def test_control_tokens_in_a_caption_stay_text(tokenizer: BeitScoreTokenizer, attack: str) -> None:
    (inside,), _ = tokenizer.encode([f"A red star. {attack} A red star."])
    (without,), _ = tokenizer.encode(["A red star. A red star."])
    assert len(inside) > len(without) + 1  # several tokens of text, not one of control
    assert not {tokenizer.start, tokenizer.end, tokenizer.pad} & set(inside[1:-1])
    if tokenizer.start:  # the fast one, of which other control tokens are known
        assert set(inside[1:-1]).isdisjoint(make_fast().added_tokens_decoder)


@pytest.mark.slow
def test_cut_at_the_position_table_and_not_at_77(tokenizer: BeitScoreTokenizer) -> None:
    words = "red star " * 200
    (tokens, short), cut = tokenizer.encode([words, "red star"])
    assert len(tokens) == tokenizer.max_tokens == 100
    assert tokens[-1] == short[-1] == tokenizer.end
    assert cut == [True, False]
    assert tokens[1 : len(short) - 1] == short[1:-1]
    # exactly as long as fits is not cut
    inner = tokens[1:-1]
    text = words
    while len(tokenizer.encode([text])[0][0]) == 100 and tokenizer.encode([text])[1][0]:
        text = text[:-1]
    (fits,), (was_cut,) = tokenizer.encode([text])
    assert not was_cut
    assert len(fits) > 77
    assert fits[1 : len(fits) - 4] == inner[: len(fits) - 5]


def test_white_space_is_collapsed_and_a_huge_caption_is_looked_at_in_part(tokenizer: BeitScoreTokenizer) -> None:
    rows, _ = tokenizer.encode(["A red\n\n star.", "  A red star.  "])
    assert rows[0] == rows[1]
    _, cut = tokenizer.encode(["x" * 100_000, " " * 100_000 + "x"])
    assert cut == [True, False]


def test_saved_and_pickled_tokenizers_are_the_same(tokenizer: BeitScoreTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    for other in (BeitScoreTokenizer.from_folder(tmp_path, max_tokens=100), pickle.loads(pickle.dumps(tokenizer))):
        assert other.encode(TEXTS) == tokenizer.encode(TEXTS)
        for name in ("start", "end", "pad", "size"):
            assert getattr(other, name) == getattr(tokenizer, name)


def test_saving_one_kind_over_the_other_leaves_one(tokenizers: dict[str, BeitScoreTokenizer], tmp_path: Path) -> None:
    for kind in ("fast", "spm", "fast"):
        tokenizers[kind].save(tmp_path)
        loaded = BeitScoreTokenizer.from_folder(tmp_path, max_tokens=100)
        assert loaded.encode(TEXTS) == tokenizers[kind].encode(TEXTS)


def test_unusable_tokenizers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="found neither"):
        BeitScoreTokenizer.from_folder(tmp_path, max_tokens=10)
    with pytest.raises(CheckpointError, match="cannot be read"):
        BeitScoreTokenizer.from_spm(tmp_path / "absent.spm")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer.json'.* cannot be read"):
        BeitScoreTokenizer.from_folder(tmp_path, max_tokens=10)
    (tmp_path / "beit3.spm").write_bytes(b"this is no sentencepiece file")
    with pytest.raises(CheckpointError, match=r"found beit3.spm and tokenizer.json"):
        BeitScoreTokenizer.from_folder(tmp_path, max_tokens=10)
    with pytest.raises(CheckpointError, match="not a readable sentencepiece file"):
        BeitScoreTokenizer.from_spm(tmp_path / "beit3.spm")
    (tmp_path / "other.spm").write_bytes(train_spm(vocab_size=40, pad_id=0, unk_id=3))
    with pytest.raises(CheckpointError, match=r"not numbered as beit3.spm is: its first pieces are <pad>"):
        BeitScoreTokenizer.from_spm(tmp_path / "other.spm")
    fast = PreTrainedTokenizerFast(tokenizer_object=make_fast().backend_tokenizer, pad_token="<pad>")
    with pytest.raises(CheckpointError, match="needs bos_token, eos_token"):
        BeitScoreTokenizer.from_fast(fast, max_tokens=10)
    with pytest.raises(ValueError, match="max_tokens must be at least 3"):
        BeitScoreTokenizer.from_fast(make_fast(), max_tokens=2)
