r"""How families of models write tool calls.

    <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>     Hermes, Qwen, and by default
    [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]                  Mistral
    [TOOL_CALLS]f[ARGS]{"a": 1}                                         Mistral since 2025
    {"name": "f", "parameters": {"a": 1}}                               Llama 3
    [f(a=1), g()]                                                       Llama 3.2 and 4, LFM2
    <function_calls>f(a=1)\ng()</function_calls>                        OLMo 3
    <|tools_prefix|>[{"f": {"a": 1}}]<|tools_suffix|>                   Apertus
    <tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>
                                                                        Qwen3-Coder, Qwen3.5
    <start_function_call>call:f{a:1}<end_function_call>                 Gemma
    <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>    Kimi
    <|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}]<|END_ACTION|>
                                                                        Cohere

A syntax writes the grammar of its calls, for llguidance as Lark and for xgrammar as a structural
tag, and reads the calls of a text.

https://huggingface.co/docs/transformers/chat_extras
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .base import ToolSyntax
from .json_calls import CohereCalls, JsonCalls, KimiCalls, MistralCalls
from .pair_calls import PairCalls
from .python_calls import PythonCalls

HERMES = JsonCalls(
    opening="<tool_call>",
    start="\n",
    separator="\n</tool_call>\n<tool_call>\n",
    end="\n</tool_call>",
)
LLAMA = JsonCalls(between='", "parameters": ')
MISTRAL = MistralCalls(opening="[TOOL_CALLS]", start="[", separator=", ", end="]")
# By the names of the YAML's `tool_call_parser`, which are vLLM's where it has one.
TOOL_SYNTAXES: Mapping[str, ToolSyntax] = {
    "openai": JsonCalls(
        opening="<|channel|>commentary to=functions.",
        before="",
        between=" <|constrain|>json<|message|>",
        after="",
    ),
    "qwen3_coder": PairCalls(
        opening="<tool_call>",
        start="\n",
        separator="\n</tool_call>\n<tool_call>\n",
        end="\n</tool_call>",
        before="<function=",
        between=">\n",
        before_key="<parameter=",
        before_value=">\n",
        after_value="\n</parameter>\n",
        after="</function>",
    ),
    "seed_oss": PairCalls(
        opening="<seed:tool_call>",
        start="\n",
        separator="\n</seed:tool_call>\n<seed:tool_call>\n",
        end="\n</seed:tool_call>",
        before="<function=",
        between=">\n",
        before_key="<parameter=",
        before_value=">",
        after_value="</parameter>\n",
        after="</function>",
    ),
    "glm47": PairCalls(
        opening="<tool_call>",
        separator="</tool_call><tool_call>",
        end="</tool_call>",
        before_key="<arg_key>",
        before_value="</arg_key><arg_value>",
        after_value="</arg_value>",
    ),
    "glm45": PairCalls(
        opening="<tool_call>",
        separator="</tool_call>\n<tool_call>",
        end="</tool_call>",
        between="\n",
        before_key="<arg_key>",
        before_value="</arg_key>\n<arg_value>",
        after_value="</arg_value>\n",
    ),
    "minimax_m2": PairCalls(
        opening="<minimax:tool_call>",
        start="\n",
        separator="",
        end="</minimax:tool_call>",
        before='<invoke name="',
        between='">\n',
        before_key='<parameter name="',
        before_value='">',
        after_value="</parameter>\n",
        after="</invoke>\n",
    ),
    "hunyuan_a13b": JsonCalls(
        opening="<tool_calls>", start="[", separator=", ", end="]</tool_calls>"
    ),
    "minimax": JsonCalls(opening="<tool_calls>", start="\n", separator="\n", end="\n</tool_calls>"),
    "kimi_k2": KimiCalls(
        opening="<|tool_calls_section_begin|>",
        separator="",
        end="<|tool_calls_section_end|>",
        before="<|tool_call_begin|>functions.",
        between="<|tool_call_argument_begin|>",
        after="<|tool_call_end|>",
        call_id_mark=":",
        call_id_pattern="[0-9]{1,3}",
        call_id_example="0",
    ),
    "cohere": CohereCalls(
        opening="<|START_ACTION|>",
        start="[\n    ",
        separator=",\n    ",
        end="\n]<|END_ACTION|>",
    ),
    "nemotron": JsonCalls(opening="<TOOLCALL>", start="[", separator=", ", end="]</TOOLCALL>"),
    "functools": JsonCalls(opening="functools", start="[", separator=", ", end="]"),
    "gemma4": PairCalls(
        opening="<|tool_call>",
        separator="<tool_call|><|tool_call>",
        end="<tool_call|>",
        before="call:",
        between="{",
        before_value=":",
        quote='<|"|>',
        comma=",",
        after="}",
    ),
    "functiongemma": PairCalls(
        opening="<start_function_call>",
        separator="<end_function_call><start_function_call>",
        end="<end_function_call>",
        before="call:",
        between="{",
        before_value=":",
        quote="<escape>",
        comma=",",
        after="}",
    ),
    "lfm2": PythonCalls(
        opening="<|tool_call_start|>", start="[", separator=", ", end="]<|tool_call_end|>"
    ),
    "olmo3": PythonCalls(opening="<function_calls>", separator="\n", end="</function_calls>"),
    "apertus": JsonCalls(
        opening="<|tools_prefix|>",
        start="[",
        separator=", ",
        end="]<|tools_suffix|>",
        before='{"',
        between='": ',
    ),
    "hermes": HERMES,
    "mistral_call_id": MistralCalls(
        opening="[TOOL_CALLS]",
        separator="[TOOL_CALLS]",
        before="",
        between="[ARGS]",
        after="",
        call_id_mark="[CALL_ID]",
    ),
    "mistral_args": MistralCalls(
        opening="[TOOL_CALLS]", separator="[TOOL_CALLS]", before="", between="[ARGS]", after=""
    ),
    "mistral": MISTRAL,
    "deepseek_v3": JsonCalls(
        opening="<｜tool▁calls▁begin｜>",
        separator="\n",
        end="<｜tool▁calls▁end｜>",
        before="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        between="\n```json\n",
        after="\n```<｜tool▁call▁end｜>",
    ),
    "deepseek_v31": JsonCalls(
        opening="<｜tool▁calls▁begin｜>",
        separator="",
        end="<｜tool▁calls▁end｜>",
        before="<｜tool▁call▁begin｜>",
        between="<｜tool▁sep｜>",
        after="<｜tool▁call▁end｜>",
    ),
    "phi4_mini_json": JsonCalls(
        opening="<|tool_call|>", start="[", separator=", ", end="]<|/tool_call|>"
    ),
    "granite": JsonCalls(opening="<|tool_call|>", start="[", separator=", ", end="]"),
    "pythonic": PythonCalls(start="[", separator=", ", end="]"),
    "llama3_json": LLAMA,
}
# The texts of a template that show a syntax, all of which it has; the first one decides.
TEMPLATE_MARKS: Mapping[str, Sequence[str]] = {
    "openai": ("<|channel|>commentary",),
    "qwen3_coder": ("<tool_call>", "<function="),
    "seed_oss": ("<seed:tool_call>",),
    "glm47": ("<tool_call>", "</arg_key><arg_value>"),
    "glm45": ("<tool_call>", "<arg_key>"),
    "minimax_m2": ("<minimax:tool_call>",),
    "hunyuan_a13b": ("<tool_calls>[",),
    "minimax": ("<tool_calls>\\n",),
    "kimi_k2": ("<|tool_calls_section_begin|>",),
    "cohere": ("<|START_ACTION|>",),
    "nemotron": ("<TOOLCALL>",),
    "functools": ("functools[",),
    "gemma4": ("<|tool_call>",),
    "functiongemma": ("<start_function_call>",),
    "lfm2": ("<|tool_call_start|>",),
    "olmo3": ("<function_calls>",),
    "apertus": ("<|tools_prefix|>",),
    "hermes": ("<tool_call>",),
    "mistral_call_id": ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    "mistral_args": ("[TOOL_CALLS]", "[ARGS]"),
    "mistral": ("[TOOL_CALLS]",),
    "deepseek_v3": ("<｜tool▁call▁begin｜>", "```json"),
    "deepseek_v31": ("<｜tool▁call▁begin｜>",),
    "phi4_mini_json": ("<|tool|>", "<|/tool|>"),
    "granite": ("<|tool_call|>",),
    "pythonic": ("[func_name1(",),
    "llama3_json": ("""'"parameters": '""",),
}
# Other texts of templates that show a syntax, whose calls they do not write themselves.
OTHER_MARKS: Mapping[str, str] = {"lfm2": "List of tools: "}


def find_tool_syntax(template: str, name: str | None = None) -> ToolSyntax:
    """Return the syntax of a chat template's calls; Hermes' syntax for an unknown template.

    Args:
        template: the chat template, with the response schema of the tokenizer if it has one.
        name: the name of a syntax, instead of that which the template shows.
    """
    if name is not None:
        return TOOL_SYNTAXES[name]
    for known, marks in TEMPLATE_MARKS.items():
        other = OTHER_MARKS.get(known)
        if all(mark in template for mark in marks) or (other and other in template):
            return TOOL_SYNTAXES[known]
    return TOOL_SYNTAXES["hermes"]
