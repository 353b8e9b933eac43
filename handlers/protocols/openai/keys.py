"""The keys of OpenAI's routes to texts: those of OpenAI, vLLM and TGI.

https://platform.openai.com/docs/api-reference
https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
https://huggingface.github.io/text-generation-inference
"""

from __future__ import annotations

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
