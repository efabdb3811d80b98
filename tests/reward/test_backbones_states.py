"""Hidden states with a shared prefix: the same as one prompt at a time, for less work, whatever the model."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModel

from reward.backbones.states import CausalStates, pool_states

_ROTARY = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_ROTARY |= {"num_key_value_heads": 2, "vocab_size": 64, "initializer_range": 0.3}
MODELS = {
    "qwen2": _ROTARY,
    "llama": _ROTARY,
    "mistral": {**_ROTARY, "sliding_window": 5},  # its cache drops what is out of the window
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64, "n_positions": 128},  # absolute positions
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64},  # takes no positions
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64, "state_size": 4},  # no keys and values
}
PREFIXES = [list(range(1, 30)), list(range(5, 20)), [7, 7], [9]]
SUFFIXES = [[3, 4, 5, 6, 7, 8, 9], [60], [1, 2], list(range(40, 60))]
BRANCHES = [[1], [2, 3, 4], [5, 6]]


def make_decoder(name):
    torch.manual_seed(0)
    return AutoModel.from_config(AutoConfig.for_model(name, **MODELS[name])).eval()


def alone(decoder, prompt):
    """The definition: one unpadded prompt, mean and last of its last hidden states."""
    hidden = decoder(input_ids=torch.tensor([prompt]), use_cache=False).last_hidden_state[0]
    return torch.cat([hidden.mean(0), hidden[-1]])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("budget", [60, 10_000])
@torch.inference_mode()
def test_equals_one_prompt_at_a_time(name, budget):
    decoder = make_decoder(name)
    pairs = [(prefix, suffix) for suffix in SUFFIXES for prefix in PREFIXES]
    states = CausalStates(decoder)
    expected = torch.stack([alone(decoder, prefix + suffix) for prefix, suffix in pairs])
    torch.testing.assert_close(states.encode(pairs, token_budget=budget), expected, atol=1e-5, rtol=0)
    assert states.shares_prefixes == (name in ("qwen2", "llama", "gpt2"))
    rows = [[alone(decoder, prefix + suffix + end) for end in BRANCHES] for prefix, suffix in pairs]
    expected = torch.stack([torch.stack(row) for row in rows])
    found = states.encode(pairs, branches=BRANCHES, token_budget=budget)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_what_a_model_gives_for_padding_is_left_out():
    hidden = torch.tensor([[[1.0], [3.0]], [[5.0], [torch.nan]]])
    assert pool_states(hidden, torch.tensor([[1, 1], [1, 0]])).tolist() == [[2, 3], [5, 5]]


_qwen2 = make_decoder("qwen2")
_ids = st.lists(st.integers(0, 63), max_size=12)


@settings(max_examples=40, deadline=None)
@given(
    prefixes=st.lists(_ids, min_size=1, max_size=4),
    suffixes=st.lists(st.tuples(st.integers(0, 3), _ids.filter(bool)), min_size=1, max_size=8),
    budget=st.integers(1, 100),
    max_rows=st.sampled_from([None, 1, 3]),
)
@torch.inference_mode()
def test_any_grouping_budget_and_duplicates(prefixes, suffixes, budget, max_rows):
    pairs = [(prefixes[which % len(prefixes)], suffix) for which, suffix in suffixes]
    expected = torch.stack([alone(_qwen2, prefix + suffix) for prefix, suffix in pairs])
    states = CausalStates(_qwen2).encode(pairs, token_budget=budget, max_rows=max_rows)
    torch.testing.assert_close(states, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({"token_budget": 10_000}, [50, 24]),
        ({"token_budget": 110}, [50, 6, 6, 6, 6]),  # two prompts of 53 tokens at a time
        ({"token_budget": 10_000, "max_rows": 4}, [50, 12, 12]),
        ({"token_budget": 10_000, "branches": [[7], [8, 9]]}, [50, 8 * (3 + 1 + 2)]),
    ],
)
@torch.inference_mode()
def test_a_prefix_is_computed_once_and_so_is_a_suffix_for_all_branches(options, read):
    decoder, sizes = make_decoder("qwen2"), []
    decoder.register_forward_pre_hook(lambda _, __, given: sizes.append(given["input_ids"].numel()), with_kwargs=True)
    CausalStates(decoder).encode([(list(range(50)), [index, 1, 2]) for index in range(8)], **options)
    assert sizes == read
