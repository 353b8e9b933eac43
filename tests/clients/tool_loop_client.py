"""Loops of two tools: a model calls one after the other, and answers from their results.

Each function runs the loop of one library, and returns the answer. The tools note their calls.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any, Literal

CALLED: list[str] = []
Animal = Literal["fox", "bear"]
Place = Literal["river", "forest"]


def animal(kind: Animal) -> str:
    """Look an animal up.

    Args:
        kind: Which one.
    """
    CALLED.append("animal")
    return f"seen {kind}"


def place(kind: Place) -> str:
    """Look a place up.

    Args:
        kind: Which one.
    """
    CALLED.append("place")
    return f"seen {kind}"


TOOLS: dict[str, Callable[..., str]] = {"animal": animal, "place": place}
SCHEMAS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"kind": {"enum": kinds}},
                "required": ["kind"],
                "additionalProperties": False,
            },
        },
    }
    for name, kinds in (("animal", ["fox", "bear"]), ("place", ["river", "forest"]))
]


def main(job: dict[str, Any]) -> dict[str, Any]:
    answer = LOOPS[job["library"]](job["base_url"], job["prompt"])
    return {"called": CALLED, "answer": answer}


def openai_chats(base_url: str, prompt: str) -> Any:
    openai = importlib.import_module("openai")
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
    return _chats(
        lambda messages: client.chat.completions.create(
            model="m", messages=messages, tools=SCHEMAS, stream=False
        ),
        prompt,
    )


def litellm(base_url: str, prompt: str) -> Any:
    library = importlib.import_module("litellm")
    settings = {"model": "openai/m", "api_base": base_url, "api_key": "none", "max_retries": 0}
    return _chats(
        lambda messages: library.completion(messages=messages, tools=SCHEMAS, **settings), prompt
    )


def _chats(ask: Callable[[list[Any]], Any], prompt: str) -> Any:
    """Run a loop of chat completions."""
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        message = ask(messages).choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = TOOLS[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def openai_agents(base_url: str, prompt: str) -> Any:
    agents = importlib.import_module("agents")
    openai = importlib.import_module("openai")
    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
    model = agents.OpenAIChatCompletionsModel(model="m", openai_client=client)
    tools = [agents.function_tool(each) for each in TOOLS.values()]
    agent = agents.Agent(name="finder", model=model, tools=tools)

    async def run() -> Any:
        result = agents.Runner.run_streamed(agent, prompt)
        async for _ in result.stream_events():
            pass
        return result.final_output

    return asyncio.run(run())


def pydantic_ai(base_url: str, prompt: str) -> Any:
    library = importlib.import_module("pydantic_ai")
    chats = importlib.import_module("pydantic_ai.models.openai")
    providers = importlib.import_module("pydantic_ai.providers.openai")
    provider = providers.OpenAIProvider(base_url=base_url, api_key="none")
    model = chats.OpenAIChatModel("m", provider=provider)
    agent = library.Agent(model, tools=list(TOOLS.values()))
    return agent.run_sync(prompt).output


def langchain(base_url: str, prompt: str) -> Any:
    messages_of = importlib.import_module("langchain_core.messages")
    tool = importlib.import_module("langchain_core.tools").tool
    chat_class = importlib.import_module("langchain_openai").ChatOpenAI
    chat = chat_class(model="m", base_url=base_url, api_key="none", max_retries=0)
    tools = {name: tool(each) for name, each in TOOLS.items()}
    caller, messages = chat.bind_tools(list(tools.values())), [messages_of.HumanMessage(prompt)]
    while True:
        messages.append(caller.invoke(messages))
        if not messages[-1].tool_calls:
            return messages[-1].content
        messages += [tools[call["name"]].invoke(call) for call in messages[-1].tool_calls]


def llama_index(base_url: str, prompt: str) -> Any:
    core = importlib.import_module("llama_index.core.llms")
    tool_class = importlib.import_module("llama_index.core.tools").FunctionTool
    chat = importlib.import_module("llama_index.llms.openai_like").OpenAILike(
        model="m",
        api_base=base_url,
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
        temperature=0,
    )
    create_model = importlib.import_module("pydantic").create_model
    schemas = {"animal": create_model("A", kind=Animal), "place": create_model("P", kind=Place)}
    tools = [
        tool_class.from_defaults(fn=each, fn_schema=schemas[name]) for name, each in TOOLS.items()
    ]
    messages = [core.ChatMessage(role="user", content=prompt)]
    while True:
        response = chat.chat_with_tools(tools, chat_history=messages)
        calls = chat.get_tool_calls_from_response(response, error_on_no_tool_call=False)
        if not calls:
            return response.message.content
        messages.append(response.message)
        for call in calls:
            more = {"tool_call_id": call.tool_id}
            result = TOOLS[call.tool_name](**call.tool_kwargs)
            messages.append(core.ChatMessage(role="tool", content=result, additional_kwargs=more))


def smolagents(base_url: str, prompt: str) -> Any:
    library = importlib.import_module("smolagents")
    model = library.OpenAIModel(model_id="m", api_base=base_url, api_key="none")
    tools = [library.tool(each) for each in TOOLS.values()]
    texts = [prompt]
    while True:
        content = [{"type": "text", "text": text} for text in texts]
        messages: list[Any] = [{"role": "user", "content": content}]
        message = model.generate(messages, tools_to_call_from=tools, tool_choice="auto")
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            arguments = call.function.arguments
            given = json.loads(arguments) if isinstance(arguments, str) else arguments
            # As its agents do, results are texts of the user.
            texts.append(f" Observation: {TOOLS[call.function.name](**given)}")


LOOPS: dict[str, Callable[[str, str], Any]] = {
    "openai": openai_chats,
    "openai_agents": openai_agents,
    "pydantic_ai": pydantic_ai,
    "langchain": langchain,
    "llama_index": llama_index,
    "litellm": litellm,
    "smolagents": smolagents,
}

if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
