from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForTextEncoding,
    BertConfig,
    BertModel,
    ByT5Tokenizer,
    DPTConfig,
    FunnelConfig,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTQConfig,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    IdeficsConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LogitsProcessor,
    LogitsProcessorList,
    MambaConfig,
    MambaForCausalLM,
    Mask2FormerConfig,
    MistralConfig,
    MistralModel,
    PreTrainedConfig,
    PreTrainedModel,
    SegformerConfig,
    T5Config,
    TableTransformerConfig,
    Wav2Vec2Config,
    Wav2Vec2CTCTokenizer,
    WhisperConfig,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
    conversion_mapping,
    masking_utils,
)
from transformers.utils import requires_backends

from hf_serve.handlers.compat import transformers as compat
from hf_serve.handlers.compat.transformers import (
    MBART50_CODES,
    MBART_CODES,
    NLLB_CODES,
    WHISPER_LANGUAGE_CODES,
    WHISPER_LANGUAGES,
    LimitedTokenizer,
    ModelProto,
    NamesRepository,
    TrainerSpec,
    bytes_of_letters,
    can_be_repeated,
    classifies_last_token,
    continue_cache,
    create_manager,
    default_settings,
    has_recurrent_state,
    is_stopping,
    join_chunks,
    lacks_package,
    pillow_processor,
    read_conversions,
    read_image_processor,
    reads_last_token,
    run_before_other_processors,
    same_attention,
    shortest_row,
    traceable_masks,
    without_masks,
    word_offsets,
)
from hf_serve.handlers.process.packages import silence_libraries
from tests import families
from tests.continuous import finished_texts

SIZE = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
LLAMA = LlamaConfig(**SIZE, intermediate_size=16, pad_token_id=0)


def bert() -> PreTrainedModel:
    torch.manual_seed(0)
    config = BertConfig(**SIZE, intermediate_size=16)
    return AutoModel.from_config(config, attn_implementation="sdpa").eval()


def test_the_table_of_converted_weights_is_read_once() -> None:
    read_conversions()
    table = conversion_mapping._checkpoint_conversion_mapping_cache
    conversion_mapping.get_checkpoint_conversion_mapping("bert")
    assert table
    assert conversion_mapping._checkpoint_conversion_mapping_cache is table


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


def test_a_mask_of_windows_is_traced_for_any_length() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 16}
    config = MistralConfig(**sizes, **heads, sliding_window=3, use_cache=False, return_dict=False)
    model = MistralModel(config).eval()

    def inputs(length: int) -> dict[str, torch.Tensor]:
        ids = torch.arange(length)[None] % 16
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    with torch.no_grad(), traceable_masks():
        graph = torch.jit.trace(model, example_kwarg_inputs=inputs(5), check_trace=False)
        torch.testing.assert_close(graph(**inputs(9))[0], model(**inputs(9))[0])


def test_masks_that_are_registered_after_a_trace_are_used() -> None:
    masks = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    given = masks["sdpa"]
    with traceable_masks():
        pass
    assert masks["sdpa"] is given
    try:
        masks.register("sdpa", print)
        assert masks["sdpa"] is print
    finally:
        masks.register("sdpa", given)


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


@pytest.mark.parametrize("is_causal", [True, False])
def test_the_attribute_and_the_config_decide_whether_later_tokens_are_read(
    is_causal: bool,
) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    small = {**sizes, "intermediate_size": 16, "num_key_value_heads": 2, "vocab_size": 9}
    module = transformers.Qwen2Model(transformers.Qwen2Config(**small, is_causal=is_causal)).eval()
    if not is_causal:
        compat.attend_both_ways(module)
    ids = torch.tensor([[3, 4, 5], [3, 4, 6]])
    first, second = module(input_ids=ids).last_hidden_state[:, 0]
    assert torch.allclose(first, second, atol=1e-6) == is_causal


def test_a_granite_without_mamba_generates_with_its_cache() -> None:
    layers = {"layer_types": ["attention"] * 2, "num_local_experts": 0, "mamba_n_heads": 8}
    values = {**SIZE, "intermediate_size": 16, "shared_intermediate_size": 16, "vocab_size": 9}
    config = GraniteMoeHybridConfig(**{**values, **layers, "num_hidden_layers": 2})
    module = GraniteMoeHybridForCausalLM(config).eval()
    compat.need_no_state(module)
    ids = torch.tensor([[3, 4, 5]])
    wanted = module.generate(ids, use_cache=False, max_new_tokens=4, do_sample=False)
    assert module.generate(ids, max_new_tokens=4, do_sample=False).equal(wanted)


def test_a_state_is_told_from_a_cache() -> None:
    mamba = MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, state_size=4)
    assert has_recurrent_state(MambaForCausalLM(mamba))
    assert not has_recurrent_state(LlamaForCausalLM(LLAMA))


def test_heads_of_decoders_read_the_last_token() -> None:
    assert reads_last_token(LlamaForSequenceClassification(LLAMA)) and classifies_last_token(LLAMA)
    assert not reads_last_token(BertModel(BertConfig(**SIZE, intermediate_size=16)))
    assert not classifies_last_token(BertConfig())


@pytest.mark.parametrize(
    ("auto_class", "config", "names"),
    [
        ("AutoModelForMaskedLM", BertConfig(), ["BertForMaskedLM"]),
        ("AutoModel", FunnelConfig(), ["FunnelModel", "FunnelBaseModel"]),
        ("AutoModelForCausalLM", T5Config(), []),
    ],
)
def test_an_auto_class_has_the_classes_of_a_config(
    auto_class: str, config: BertConfig, names: list[str]
) -> None:
    found = compat.model_classes(auto_class, config)
    assert [each.__name__ for each in found] == names


@pytest.mark.parametrize(
    ("auto_class", "with_one", "without"),
    [
        ("AutoModelForMaskedLM", BertConfig, GPT2Config),
        ("AutoModelForCausalLM", GPT2Config, T5Config),
        ("AutoModelForCTC", Wav2Vec2Config, WhisperConfig),
        ("AutoModelForUniversalSegmentation", Mask2FormerConfig, SegformerConfig),
    ],
)
def test_an_auto_class_has_no_class_for_other_configs(
    auto_class: str, with_one: Any, without: Any
) -> None:
    assert compat.has_model(auto_class, with_one())
    assert not compat.has_model(auto_class, without())


def test_a_class_of_a_config_is_the_one_that_is_loaded() -> None:
    config = T5Config(vocab_size=8, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    (kind,) = compat.model_classes("AutoModelForTextEncoding", config)
    assert type(AutoModelForTextEncoding.from_config(config)) is kind


def test_processors_are_those_of_configs() -> None:
    kind = compat.processor_class(IdeficsConfig())
    assert kind is not None
    assert kind.__name__ == "IdeficsProcessor"
    assert compat.processor_class(BertConfig()) is None


def test_a_tokenizer_is_named_or_that_of_the_model_type() -> None:
    assert compat.tokenizer_class("ByT5Tokenizer", "bert") is ByT5Tokenizer
    assert "Bert" in compat.tokenizer_class(None, "bert").__name__
    assert compat.tokenizer_class(None, "no such type") is None


@pytest.fixture(scope="module")
def module() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def manager(module: LlamaForCausalLM) -> Iterator[Any]:
    found = create_manager(module, [], block_size=16, blocks=8, max_batch_tokens=64)
    found.start()
    yield found
    found.stop(block=True)


def test_texts_that_begin_alike_are_those_of_generate(
    module: LlamaForCausalLM, manager: Any
) -> None:
    prompts = {"a": [3, 4, 5, 6], "b": [3, 4, 5, 6], "c": [3, 4, 7]}
    for name, ids in prompts.items():
        manager.add_request(ids, name, max_new_tokens=4, streaming=True)
    texts = finished_texts(manager, len(prompts))
    config = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=0)
    for name, ids in prompts.items():
        attention = module.config._attn_implementation
        module.set_attn_implementation("sdpa")
        expected = module.generate(torch.tensor([ids]), generation_config=config)
        module.set_attn_implementation(attention)
        assert texts[name] == expected[0, len(ids) :].tolist()


@pytest.mark.parametrize(("tokens_per_second", "first"), [(1024, "short"), (10**12, "long")])
def test_a_short_prompt_is_read_first_until_a_long_one_has_waited(
    module: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch, tokens_per_second: int, first: str
) -> None:
    monkeypatch.setattr(
        "hf_serve.handlers.compat.transformers.TOKENS_PER_WAITED_SECOND", tokens_per_second
    )
    manager = create_manager(module, [], block_size=16, blocks=16, max_batch_tokens=16)
    for name, ids in {"long": [3, 4, 5, 6] * 24, "short": [3, 4, 7]}.items():
        manager.add_request(ids, name, max_new_tokens=1, streaming=True)
    manager.start()
    output = manager.get_result(timeout=60)
    manager.stop(block=True)
    assert output.request_id == first


def test_a_manager_stops_once_it_is_told_to(manager: Any) -> None:
    assert not is_stopping(manager)
    manager.stop(block=False)
    assert is_stopping(manager)


def test_texts_are_not_logged(manager: Any) -> None:
    silence_libraries()
    names = [name for name in logging.root.manager.loggerDict if "ContinuousBatching" in name]
    assert names == ["ContinuousBatchingLogger"]
    assert not logging.getLogger(names[0]).isEnabledFor(logging.WARNING)


class Recorder(LogitsProcessor):
    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.seen.append(scores.clone())
        return scores


def small_model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=32, n_embd=8, n_layer=1, n_head=2))


def test_generate_has_these_settings_where_none_are_given() -> None:
    defaults = default_settings(GenerationConfig())
    assert (defaults["temperature"], defaults["top_k"], defaults["top_p"]) == (1.0, 50, 1.0)


def test_the_processor_sees_the_logits_of_the_model() -> None:
    """A processor that `generate` takes as an argument sees what its own processors leave."""
    model, ids = small_model().eval(), torch.tensor([[1, 2, 3]])
    first, last = Recorder(), Recorder()
    config = GenerationConfig(
        max_new_tokens=1, do_sample=False, bad_words_ids=[[5]], pad_token_id=0
    )
    text = model.generate(
        ids,
        generation_config=config,
        logits_processor=LogitsProcessorList([last]),
        **run_before_other_processors(first),
    )
    with torch.inference_mode():
        expected = model(ids).logits[:, -1].float()
    assert torch.allclose(first.seen[0], expected, atol=1e-5)
    assert torch.isinf(last.seen[0][0, 5])
    assert text.tolist() == model.generate(ids, generation_config=config).tolist()


@pytest.mark.parametrize(
    "name", ["ViTImageProcessor", "SegformerImageProcessor", "Idefics3ImageProcessor"]
)
def test_a_processor_of_pillow_is_found(tmp_path: Path, name: str) -> None:
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({"image_processor_type": name}), encoding="utf-8")
    found = read_image_processor(tmp_path)
    assert type(found).__name__.startswith(name)


def test_an_unknown_processor_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "preprocessor_config.json"
    file.write_text('{"image_processor_type": "NoImageProcessor"}', encoding="utf-8")
    with pytest.raises(ValueError, match="image processor"):
        read_image_processor(tmp_path)
    assert pillow_processor("NoImageProcessorPil") is None


@pytest.mark.skipif(find_spec("gptqmodel") is not None, reason="gptqmodel is installed")
def test_a_missing_package_is_told_from_other_errors(tmp_path: Path) -> None:
    size = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 32}
    model = LlamaForCausalLM(LlamaConfig(**size, num_hidden_layers=1, num_attention_heads=2))
    model.config.quantization_config = GPTQConfig(bits=4).to_dict()
    model.save_pretrained(tmp_path)
    with pytest.raises((ImportError, NameError, ValueError, RuntimeError)) as raised:
        AutoModelForCausalLM.from_pretrained(tmp_path)
    assert lacks_package(raised.value)
    assert not lacks_package(ValueError("wrong"))


def test_whisper_has_names_of_its_languages() -> None:
    assert WHISPER_LANGUAGES["de"] == "german" and WHISPER_LANGUAGE_CODES["german"] == "de"


def test_the_join_is_a_method_of_whispers_tokenizer() -> None:
    assert callable(WhisperTokenizer._decode_asr)


def test_chunks_without_tokens_have_no_text() -> None:
    tokenizer = WhisperTokenizer.__new__(WhisperTokenizer)

    def decode(model_outputs: list[dict[str, object]], **options: object) -> tuple[str, object]:
        return "joined", {"outputs": model_outputs, **options}

    tokenizer.__dict__["_decode_asr"] = decode
    options = {"return_timestamps": "word", "return_language": True, "time_precision": 0.02}
    text, parts = join_chunks(tokenizer, [{"tokens": 1}], **options)  # type: ignore[arg-type]
    assert (text, parts) == ("joined", {"outputs": [{"tokens": 1}], **options})


def test_letters_are_joined_to_words(tmp_path: Path) -> None:
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", "a", "b"]
    file = tmp_path / "vocab.json"
    file.write_text(json.dumps({each: n for n, each in enumerate(letters)}), encoding="utf-8")
    tokenizer = Wav2Vec2CTCTokenizer(str(file))
    found = tokenizer.decode([5, 5, 0, 6, 4, 5], output_char_offsets=True)
    words = word_offsets(tokenizer, found["char_offsets"])
    assert words == [
        {"word": "ab", "start_offset": 0, "end_offset": 4},
        {"word": "a", "start_offset": 5, "end_offset": 6},
    ]


def test_ids_that_the_model_does_not_have_are_unknown() -> None:
    backend = Tokenizer(WordLevel({"<unk>": 0, "a": 1, "b": 2, "c": 3}, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = LimitedTokenizer(tokenizer_object=backend, unk_token="<unk>")
    tokenizer.ids = 3
    assert tokenizer("a b c d")["input_ids"] == [1, 2, 0, 0]
    assert tokenizer(["c", "a c"])["input_ids"] == [[0], [1, 0]]


def test_each_byte_has_a_letter() -> None:
    letters = bytes_of_letters()
    assert sorted(letters.values()) == list(range(256))
    assert (letters["a"], letters["Ġ"]) == (ord("a"), ord(" "))


def test_languages_are_in_the_order_of_their_ids() -> None:
    assert MBART_CODES[:2] == ["ar_AR", "cs_CZ"]
    assert (len(MBART_CODES), len(MBART50_CODES), len(NLLB_CODES)) == (25, 52, 202)


def test_the_messages_of_sentencepiece_files_have_pieces_and_their_kind() -> None:
    model = ModelProto()
    model.pieces.add(piece="▁a", score=-1.5)
    model.trainer_spec.model_type = TrainerSpec.BPE
    read = ModelProto.FromString(model.SerializeToString())
    assert [(each.piece, each.score) for each in read.pieces] == [("▁a", -1.5)]
    assert read.trainer_spec.model_type == TrainerSpec.BPE


def decoder(config: PreTrainedConfig) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


@torch.no_grad()
def test_several_rows_continue_the_cache_of_one() -> None:
    model, before = decoder(LLAMA), torch.tensor([[1, 2, 3, 4]])
    cache = model(before, use_cache=True).past_key_values
    assert can_be_repeated(cache)
    ids, mask = torch.tensor([[5, 6], [7, 0]]), torch.tensor([[1, 1], [1, 0]])
    for _ in range(2):
        logits = model(input_ids=ids, **continue_cache(cache, mask)).logits
        for row, own in enumerate(([5, 6], [7])):
            whole = model(torch.tensor([[1, 2, 3, 4, *own]])).logits[0, 4:]
            assert torch.allclose(logits[row, : len(own)], whole, atol=1e-5)


@torch.no_grad()
def test_a_cache_with_windows_is_not_repeated() -> None:
    """It may have dropped tokens that a row attends to."""
    config = MistralConfig(**SIZE, intermediate_size=16, num_key_value_heads=2, sliding_window=4)
    assert not can_be_repeated(decoder(config)(torch.tensor([[1, 2]])).past_key_values)
    assert not can_be_repeated(None)


@pytest.mark.parametrize(
    ("family", "values"),
    [
        *(("canine", {"downsampling_rate": rate}) for rate in (2, 4, 8)),
        *(
            ("funnel", {"block_sizes": [1] * blocks, "separate_cls": alone, "truncate_seq": cut})
            for blocks in (1, 2, 3, 4)
            for alone in (True, False)
            for cut in (True, False)
        ),
    ],
)
def test_rows_of_the_shortest_length_and_longer_run(family: str, values: dict[str, Any]) -> None:
    module = families.module(family, "token_classification", **values)
    least = shortest_row(module.config)
    for width in range(least, least + 8):
        ids = torch.arange(10, 10 + width)[None]
        with torch.inference_mode():
            assert module(input_ids=ids).logits.shape[1] == width
    if least > 1:
        with pytest.raises(RuntimeError), torch.inference_mode():
            module(input_ids=torch.arange(10, 9 + least)[None])


def test_other_families_have_no_shortest_row() -> None:
    assert shortest_row(BertConfig()) == 1


def test_linear_layers_have_sizes_and_others_have_none() -> None:
    gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=9))
    assert compat.linear_sizes(gpt2.transformer.h[0].mlp.c_fc) == (8, 32)
    assert compat.linear_sizes(gpt2.lm_head) == (8, 9)
    assert compat.linear_sizes(gpt2.transformer.wte) is None


@pytest.mark.parametrize(
    "given", [{"backbone_kwargs": {"in_chans": 3}}, {"use_timm_backbone": False}]
)
def test_backbones_of_timm_are_known_without_the_hub(given: dict[str, Any]) -> None:
    with compat.local_backbones():
        config = TableTransformerConfig(backbone="resnet18", **given)
        with pytest.raises(NamesRepository, match="org/model"):
            DPTConfig(backbone="org/model", is_hybrid=False)
    assert config.backbone_config.backbone == "resnet18"


def test_the_package_that_transformers_lacks_is_known() -> None:
    with pytest.raises(ImportError) as caught:
        requires_backends("Part", ["timm"])
    assert compat.missing_package(caught.value) == "timm"
    assert compat.missing_package(ModuleNotFoundError("No", name="soxr")) == "soxr"
    assert compat.missing_package(ValueError("pip install soxr")) is None
