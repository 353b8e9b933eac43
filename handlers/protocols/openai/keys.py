"""The keys of OpenAI's routes: those of OpenAI, vLLM, TGI, TEI, Jina and infinity.

https://platform.openai.com/docs/api-reference
https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
https://huggingface.github.io/text-generation-inference
https://jina.ai/embeddings
"""

from __future__ import annotations

from collections.abc import Mapping

from handlers.protocols.keys import Key, KeyTable, honoured, ignored, refused
from handlers.protocols.openai.bodies import ChatBody, CompletionBody

# Who asks, how it is billed, and where a server of OpenAI or vLLM runs it.
BOOKKEEPING = ignored(
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
)
SCHEDULING = ignored("request_id", "session_id", "priority", "cache_salt")
NOTHING_STORED = "nothing is stored, so send the whole conversation as input"

SAMPLING = {
    **BOOKKEEPING,
    **SCHEDULING,
    # How vLLM computes, or sends events; fast tokenizers have no such spaces.
    **ignored(
        "spaces_between_special_tokens",
        "guided_decoding_backend",
        "stream_interval",
        "return_mm_kwargs",
        "return_token_offsets",
        "routed_experts_prompt_start",
    ),
    **refused(
        use_beam_search=False,
        length_penalty=1.0,
        include_stop_str_in_output=False,
        prompt_logprobs=[],
        logprob_token_ids=[],
        return_token_ids=False,
        return_tokens_as_token_ids=False,
        return_prompt_text=False,
        logits_processors=[],
        truncation_side="left",
        guided_whitespace_pattern=[],
        structural_tag=[],
        repetition_detection=[],
        thinking_token_budget=[],
        watermarking=False,
        kv_transfer_params=[],
        ec_transfer_params=[],
        vllm_xargs=[],
        mm_processor_kwargs=[],
        media_io_kwargs=[],
    ),
}

CHAT = KeyTable(
    {
        **honoured(*ChatBody.model_fields),
        **SAMPLING,
        # Its text makes the answer of OpenAI's servers faster, not another one. Tools are described
        # as the model's template does it.
        **ignored("prediction", "tool_prompt"),
        **refused(
            functions=[],
            function_call=["none", "auto"],
            modalities=[["text"]],
            audio=[],
            verbosity="medium",
            moderation=[],
            echo=False,
            include_reasoning=True,
            guideline=[],
        ),
        # An empty object asks for a search.
        "web_search_options": Key("refused", by_presence=True),
        # A template is a program; the checkpoint's own is the only one that runs.
        "chat_template": Key("refused", remedy="the checkpoint's own is used, so leave it out"),
    }
)

COMPLETIONS = KeyTable(
    {
        **honoured(*CompletionBody.model_fields),
        **SAMPLING,
        **refused(suffix=[], prompt_embeds=[]),
    }
)

RESPONSES = KeyTable(
    {
        **honoured(
            "input",
            "model",
            "instructions",
            "max_output_tokens",
            "temperature",
            "top_p",
            "stream",
        ),
        **BOOKKEEPING,
        **SCHEDULING,
        **honoured("metadata"),
        # A stream has its usage in any case; there are no tools to call.
        **ignored("stream_options", "tool_choice", "parallel_tool_calls", "max_tool_calls"),
        **refused(
            background=False,
            include=[],
            prompt=[],
            reasoning=[],
            text=[
                {"format": {"type": "text"}},
                {"format": {"type": "text"}, "verbosity": "medium"},
            ],
            tools=[],
            top_logprobs=0,
            truncation="disabled",
            context_management=[],
            moderation=[],
            include_stop_str_in_output=False,
            mm_processor_kwargs=[],
            media_io_kwargs=[],
            chat_template=[],
            chat_template_kwargs=[],
            structured_outputs=[],
            logit_bias=[],
            frequency_penalty=0,
            presence_penalty=0,
            repetition_penalty=1,
            top_k=[-1, 0],
            min_p=0,
            seed=[],
            stop=[],
            ignore_eos=False,
            skip_special_tokens=True,
            vllm_xargs=[],
            kv_transfer_params=[],
            previous_input_messages=[],
            enable_response_messages=False,
        ),
        "conversation": Key("refused", remedy=NOTHING_STORED),
        "previous_response_id": Key("refused", remedy=NOTHING_STORED),
    }
)

EMBEDDINGS = KeyTable(
    {
        **honoured(
            "input",
            "model",
            "dimensions",
            "encoding_format",
            "modality",
            "normalize",
            "normalized",
            "use_activation",
            "truncate",
            "truncate_prompt_tokens",
        ),
        **ignored("user", "padding"),
        **SCHEDULING,
        **refused(
            messages=[],
            add_special_tokens=True,
            add_generation_prompt=False,
            continue_final_message=False,
            chat_template=[],
            chat_template_kwargs=[],
            mm_processor_kwargs=[],
            media_io_kwargs=[],
            truncation_side="right",
            embed_dtype="float32",
            endianness=["native", "little"],
            embedding_type=["float", ["float"]],
            instruction=[],
            input_type=[],
            prompt_name=[],
            task=[],
            late_chunking=False,
            return_multivector=False,
        ),
    }
)

IMAGES = KeyTable(
    {
        **honoured(
            "prompt",
            "model",
            "n",
            "size",
            "response_format",
            "output_format",
            "output_compression",
            "background",
            "stream",
            "partial_images",
            "seed",
            "negative_prompt",
            "num_inference_steps",
            "guidance_scale",
        ),
        # Hints to OpenAI's own models.
        **ignored("user", "quality", "style", "moderation", "safety_identifier"),
        **refused(reasoning=[], svg=[]),
    }
)

_SPEECH_TO_TEXT = {
    **honoured("file", "model", "prompt", "response_format", "temperature"),
    **ignored("stream_include_usage", "stream_continuous_usage_stats"),
    **refused(
        seed=[],
        top_p=["1", "1.0", 1],
        top_k=["0", "-1", 0, -1],
        min_p=["0", "0.0", 0],
        frequency_penalty=["0", "0.0", 0],
        presence_penalty=["0", "0.0", 0],
        repetition_penalty=["1", "1.0", 1],
        max_completion_tokens=[],
        vllm_xargs=[],
        hotwords=[],
        use_beam_search=["false", False],
        n=["1", 1],
        length_penalty=["1", "1.0", 1],
    ),
}
TRANSCRIPTIONS = KeyTable(
    {
        **_SPEECH_TO_TEXT,
        **honoured("language", "stream", "timestamp_granularities", "timestamp_granularities[]"),
        **refused(
            **{
                "include": [],
                "include[]": [],
                "chunking_strategy": ["auto"],
                "keywords": [],
                "languages": [],
                "known_speaker_names": [],
                "known_speaker_names[]": [],
                "known_speaker_references": [],
                "known_speaker_references[]": [],
                "to_language": [],
            }
        ),
    }
)
TRANSLATIONS = KeyTable(
    {
        **_SPEECH_TO_TEXT,
        **refused(language=[], to_language=["en", "english"], stream=[False, "false"]),
    }
)

SPEECH = KeyTable(
    {
        **honoured(
            "input",
            "model",
            "voice",
            "response_format",
            "speed",
            "stream_format",
            "seed",
            "noise_scale",
            "noise_scale_duration",
        ),
        # A hint to OpenAI's own models.
        **ignored("instructions", "user"),
        **refused(stream=False),
    }
)

TABLES: Mapping[str, KeyTable] = {
    "chat/completions": CHAT,
    "completions": COMPLETIONS,
    "responses": RESPONSES,
    "embeddings": EMBEDDINGS,
    "images/generations": IMAGES,
    "audio/transcriptions": TRANSCRIPTIONS,
    "audio/translations": TRANSLATIONS,
    "audio/speech": SPEECH,
}
