"""The keys of OpenAI's routes to texts: those of OpenAI, vLLM and TGI.

https://platform.openai.com/docs/api-reference
https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
https://huggingface.github.io/text-generation-inference
"""

from __future__ import annotations

from handlers.protocols.keys import Key, KeyTable, honoured, ignored, refused

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
# The keys of a chat that are parameters of its prompt.
OF_PROMPT = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template_kwargs",
    "documents",
    "reasoning_effort",
)

SAMPLING = {
    **honoured(
        "model",
        "max_tokens",
        "temperature",
        "top_p",
        "n",
        "stop",
        "seed",
        "stream",
        "stream_options",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "logprobs",
        "response_format",
        "top_k",
        "min_p",
        "repetition_penalty",
        "min_tokens",
        "stop_token_ids",
        "ignore_eos",
        "skip_special_tokens",
        "bad_words",
        "allowed_token_ids",
        "truncate_prompt_tokens",
        "add_special_tokens",
        "structured_outputs",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
    ),
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
        best_of=1,
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
        **honoured(
            "messages",
            "max_completion_tokens",
            "top_logprobs",
            *OF_PROMPT,
        ),
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
        **honoured("prompt", "echo"),
        **SAMPLING,
        **refused(suffix=[], prompt_embeds=[]),
    }
)
