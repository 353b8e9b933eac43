from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from handlers.compat.transformers.attention import (
    has_recurrent_state,
    reads_last_token,
    same_attention,
    without_masks,
)

SIZE = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
LLAMA = LlamaConfig(**SIZE, intermediate_size=16, pad_token_id=0)


def bert() -> PreTrainedModel:
    torch.manual_seed(0)
    config = BertConfig(**SIZE, intermediate_size=16)
    return AutoModel.from_config(config, attn_implementation="sdpa").eval()


def test_without_masks_the_given_mask_is_all_that_hides_tokens() -> None:
    model, ids = bert(), torch.tensor([[1, 2, 3, 4]])
    shown = torch.tensor([[[[True, True, False, False]]]]).expand(1, 1, 4, 4)
    with torch.inference_mode():
        expected = model(ids, attention_mask=torch.tensor([[1, 1, 0, 0]])).last_hidden_state
        with without_masks(model.config):
            assert model.config._attn_implementation != "sdpa"
            found = model(ids, attention_mask=shown).last_hidden_state
    assert model.config._attn_implementation == "sdpa"
    assert torch.allclose(found[:, :2], expected[:, :2], atol=1e-5)


def test_without_masks_a_model_can_be_exported() -> None:
    model, ids = bert(), torch.tensor([[1, 2, 3, 4]])
    mask = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    with torch.inference_mode(), without_masks(model.config):
        program = torch.export.export(model, (ids,), {"attention_mask": mask})
    assert "input_ids" in str(program.graph_signature)


def test_the_attention_is_restored_after_an_error() -> None:
    config = bert().config
    with pytest.raises(KeyError), same_attention(config):
        config._attn_implementation = "eager"
        raise KeyError
    assert config._attn_implementation == "sdpa"


def test_whisper_leaves_another_attention() -> None:
    """If this fails, `same_attention` is not needed any more."""
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=64,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_mel_bins=8,
        max_source_positions=100,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
    )
    model = WhisperForConditionalGeneration(config).eval()
    assert model.config._attn_implementation == "sdpa"
    model.generation_config.alignment_heads = [[0, 0]]
    model.generation_config.no_timestamps_token_id = 40
    model.generation_config.max_new_tokens = 4
    features = torch.zeros(1, 8, 200)
    with same_attention(model.config):
        model.generate(features, return_token_timestamps=True, return_timestamps=True)
        changed = model.config._attn_implementation
    assert changed != "sdpa"
    assert model.config._attn_implementation == "sdpa"


def test_a_state_is_told_from_a_cache() -> None:
    mamba = MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, state_size=4)
    assert has_recurrent_state(MambaForCausalLM(mamba))
    assert not has_recurrent_state(LlamaForCausalLM(LLAMA))


def test_heads_of_decoders_read_the_last_token() -> None:
    assert reads_last_token(LlamaForSequenceClassification(LLAMA))
    assert not reads_last_token(BertModel(BertConfig(**SIZE, intermediate_size=16)))
