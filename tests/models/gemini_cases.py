"""Random conversations and streams for the Gemini codec, each with what the official SDK is to be
told or has to find.

A reply is described once, as a list of `Piece`s. Our side gets it as bytes through our own decoder;
the SDK's side is built here from the same pieces in the SDK's own types, so that neither mapping is
made from the other."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import dataclass, field
from typing import Any

from google.genai import types

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.core.values import ToolSchema
from retinue.models.codec import Options
from retinue.models.gemini import GeminiCodec

WORDS = [
    "alpha",
    "Über",
    "naïve",
    "日本語",
    "שלום",
    "🙂🙃",
    "a\tb",
    "line\nbreak",
    '"quoted"',
    "back\\slash",
    "\u202e rtl",
]
WORDS += [
    "\x00nul",
    "e\u0301",
    "</script>",
    "data: {",
    "\r\n\r\n",
    "{}",
    "-",
    "0",
    "&=<>'",
    "\u2028sep",
    "\U0010ffff",
]
NAMES = ["read", "write_file", "shell.run", "mcp:find", "spawn-agent", "_x"]
FOREIGN_ARGS: list[tuple[str, dict[str, Any]]] = [
    ("{}", {}),
    ("", {}),
    ('{"a":1,"b":[true,null,1.5,"ü"]}', {"a": 1, "b": [True, None, 1.5, "ü"]}),
    (
        '{"deep":{"er":{"est":-0.25}},"big":123456789012345678901}',
        {"deep": {"er": {"est": -0.25}}, "big": 123456789012345678901},
    ),
    ('{"path": "a", ', {"invalid_json": '{"path": "a", '}),
    ('"text"', {"invalid_json": '"text"'}),
    ("[1]", {"invalid_json": "[1]"}),
    ('{"a":1,"a":2}', {"a": 2}),
]
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {}},
    {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/it_em"}]},
            }
        },
        "$defs": {"it_em": {"enum": ["a_b", "cD", 1, None], "max_length": 3}},
    },
]


@dataclass
class Piece:
    """One part of a reply. `given` is the id that the provider sent for a call."""

    kind: str
    text: str = ""
    sign: bytes = b""
    given: str = ""
    name: str = ""
    args: dict[str, Any] = field(default_factory=dict)


@dataclass
class Case:
    """The same request twice: in our values, and as the SDK's parameters."""

    model: str
    instructions: str
    messages: list[Message]
    tools: list[ToolSchema]
    options: Options
    max_output: int
    contents: list[types.Content]
    config: types.GenerateContentConfig


def words(rng: random.Random, most: int = 6) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def value(rng: random.Random, depth: int = 0) -> Any:
    kinds = ["text", "int", "float", "bool", "null"] + (["list", "dict"] if depth < 2 else [])
    match rng.choice(kinds):
        case "text":
            return words(rng, 2)
        case "int":
            return rng.randint(-(2**40), 2**40)
        case "float":
            return rng.choice([0.5, -1.25e-7, 3.141592653589793, 1e300, 2.0])
        case "bool":
            return rng.random() < 0.5
        case "null":
            return None
        case "list":
            return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
        case _:
            return {words(rng, 1): value(rng, depth + 1) for _ in range(rng.randint(0, 3))}


def pieces(rng: random.Random, most: int = 5) -> list[Piece]:
    """A reply as a model makes it: thoughts, text, then calls; signatures on some, in any order
    when there are any."""
    pieces: list[Piece] = []
    is_signed = rng.random() < 0.6
    for n in range(rng.randint(1, most)):
        sign = rng.randbytes(rng.randint(3, 12)) if is_signed and rng.random() < 0.5 else b""
        match rng.choice(["text", "text", "call", "call", "thought"]):
            case "text":
                pieces.append(
                    Piece(
                        "text",
                        text=words(rng, 2) if not sign or rng.random() < 0.5 else "",
                        sign=sign,
                    )
                )
            case "thought":
                pieces.append(Piece("thought", text=words(rng, 2), sign=sign))
            case _:
                call_id = rng.choice(["", f"fc_{rng.randrange(10**6)}_{n}"])
                args = {words(rng, 1): value(rng) for _ in range(rng.randint(0, 3))}
                pieces.append(
                    Piece("call", sign=sign, given=call_id, name=rng.choice(NAMES), args=args)
                )
    if not any(p.sign for p in pieces):
        pieces.sort(key=lambda p: p.kind == "call")
    return pieces


def wire_part(piece: Piece) -> dict[str, Any]:
    part: dict[str, Any] = {}
    if piece.kind == "call":
        part["functionCall"] = {"name": piece.name, "args": piece.args} | (
            {"id": piece.given} if piece.given else {}
        )
    else:
        part["text"] = piece.text
    if piece.kind == "thought":
        part["thought"] = True
    if piece.sign:
        part["thoughtSignature"] = base64.b64encode(piece.sign).decode()
    return part


def sse(chunks: list[dict[str, Any]], rng: random.Random | None = None) -> bytes:
    rng = rng or random.Random(0)
    out = b""
    for chunk in chunks:
        # Escaped, when it holds what the SDK takes for the end of a line.
        plain = json.dumps(chunk, ensure_ascii=False)
        is_plain = rng.random() < 0.5 and len(plain.splitlines()) == 1
        tight = rng.choice([(",", ":"), (", ", ": ")])
        out += (
            b"data: "
            + json.dumps(chunk, ensure_ascii=not is_plain, separators=tight).encode()
            + b"\r\n\r\n"
        )
    return out


def answered(pieces: list[Piece]) -> AssistantMessage:
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"parts": [wire_part(p)]}}]} for p in pieces
    ]
    decoder = GeminiCodec().decoder(Options())
    decoder.feed(sse([*chunks, {"candidates": [{"finishReason": "STOP"}]}]))
    return decoder.finish().message


def sdk_parts(pieces: list[Piece]) -> list[types.Part]:
    """What the SDK has to send back: no unsigned thoughts, neighbouring plain texts as one."""
    parts: list[types.Part] = []
    mergeable = False
    for piece in pieces:
        if piece.kind == "thought" and not piece.sign:
            continue
        if piece.kind == "call":
            call = types.FunctionCall(id=piece.given or None, name=piece.name, args=piece.args)
            parts.append(types.Part(function_call=call, thought_signature=piece.sign or None))
        elif piece.kind == "text" and not piece.sign and mergeable:
            parts[-1] = types.Part(text=(parts[-1].text or "") + piece.text)
        else:
            is_thought = True if piece.kind == "thought" else None
            parts.append(
                types.Part(
                    text=piece.text, thought=is_thought, thought_signature=piece.sign or None
                )
            )
        mergeable = piece.kind == "text" and not piece.sign
    return parts or [types.Part(text="(empty)")]


def picture(rng: random.Random) -> tuple[Image, types.Part]:
    data, kind = rng.randbytes(rng.randint(1, 20)), rng.choice(["image/png", "image/jpeg"])
    return Image(media_type=kind, data=base64.b64encode(data).decode()), types.Part.from_bytes(
        data=data, mime_type=kind
    )


def exchange(rng: random.Random) -> tuple[list[Message], list[types.Content]]:
    """A reply with the results of its calls."""
    if rng.random() < 0.75:
        result = pieces(rng)
        texts = answered(result)
        contents = [types.Content(role="model", parts=sdk_parts(result))]
        rows = [(p.given, p.name) for p in result if p.kind == "call"]
    else:
        choices = [
            (f"toolu_{n}{rng.randrange(999)}", rng.choice(NAMES), *rng.choice(FOREIGN_ARGS))
            for n in range(rng.randint(0, 3))
        ]
        text = words(rng) if rng.random() < 0.7 or not choices else ""
        calls = tuple(ToolCall(id=i, name=name, arguments_json=raw) for i, name, raw, _ in choices)
        texts = AssistantMessage(
            text=text,
            calls=calls,
            opaque=rng.choice(["", 'anthropic\n[{"type":"thinking"}]', "gemini\n[99]"]),
        )
        parts = [types.Part(text=text)] if text else []
        parts += [
            types.Part(function_call=types.FunctionCall(id=i, name=name, args=a))
            for i, name, _, a in choices
        ]
        contents = [types.Content(role="model", parts=parts)]
        rows = [(i, name) for i, name, _, _ in choices]
    messages: list[Message] = [texts]
    responses, media = [], []
    for call, (value, name) in zip(texts.calls, rows, strict=True):
        text, is_error = words(rng), rng.random() < 0.3
        pictures = [picture(rng) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
        messages.append(
            ToolMessage(
                call_id=call.id,
                text=text,
                name=name,
                error=is_error,
                images=tuple(i for i, _ in pictures),
            )
        )
        response = types.FunctionResponse(
            id=value or None, name=name, response={"error" if is_error else "output": text}
        )
        responses.append(types.Part(function_response=response))
        if pictures:
            media += [
                types.Part(text=f"Images returned by {name}:"),
                *(part for _, part in pictures),
            ]
    contents += [types.Content(role="user", parts=p) for p in (responses, media) if p]
    return messages, contents


def options_of(rng: random.Random) -> tuple[Options, dict[str, Any]]:
    choices: dict[str, Any] = {
        "stream": rng.random() < 0.8,
        "cache": rng.random() < 0.5,
        "cache_key": rng.choice(["", "k"]),
    }
    config: dict[str, Any] = {}
    if rng.random() < 0.5:
        choices["temperature"] = config["temperature"] = rng.choice([0.0, 0.3, 1.0, 2.0])
    effort = rng.choice(["", "minimal", "low", "medium", "high"])
    budget = rng.choice([None, None, 0, -1, 4096])
    if effort:
        choices["effort"] = effort
    if budget is not None:
        choices["thinking_tokens"] = budget
        config["thinking_config"] = types.ThinkingConfig(thinking_budget=budget)
    elif effort:
        config["thinking_config"] = types.ThinkingConfig(
            thinking_level=types.ThinkingLevel[effort.upper()]
        )
    if rng.random() < 0.3:
        choices["output_schema"] = config["response_json_schema"] = rng.choice(SCHEMAS)
        config["response_mime_type"] = "application/json"
    extra: dict[str, Any] = {}
    if rng.random() < 0.2:
        extra["generationConfig"] = {"topP": 0.5, "stopSequences": ["END"], "maxOutputTokens": 77}
        config |= {"top_p": 0.5, "stop_sequences": ["END"], "max_output_tokens": 77}
    if rng.random() < 0.2:
        extra["toolConfig"] = {"functionCallingConfig": {"mode": "ANY"}}
        mode = types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY)
        config["tool_config"] = types.ToolConfig(function_calling_config=mode)
    if rng.random() < 0.2:
        extra["safetySettings"] = [
            {"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}
        ]
        harm, block = (
            types.HarmCategory.HARM_CATEGORY_HARASSMENT,
            types.HarmBlockThreshold.BLOCK_NONE,
        )
        config["safety_settings"] = [types.SafetySetting(category=harm, threshold=block)]
    return Options(**choices, extra=extra), config


def case(rng: random.Random) -> Case:
    messages: list[Message] = []
    contents: list[types.Content] = []
    for n in range(rng.randint(1, 5)):
        if n == 0 or rng.random() < 0.4:
            pictures = [picture(rng) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
            text = words(rng) if rng.random() < 0.9 or not pictures else ""
            messages.append(UserMessage(text=text, images=tuple(i for i, _ in pictures)))
            parts = [*([types.Part(text=text)] if text else []), *(part for _, part in pictures)]
            contents.append(types.Content(role="user", parts=parts))
        else:
            more, contents_sent = exchange(rng)
            messages += more
            contents += contents_sent
    options, config = options_of(rng)
    tools = [
        ToolSchema(name=name, description=words(rng), parameters=rng.choice(SCHEMAS))
        for name in rng.sample(NAMES, rng.randint(0, 4))
    ]
    if tools:
        declared = [
            types.FunctionDeclaration(
                name=t.name, description=t.description, parameters_json_schema=t.parameters
            )
            for t in tools
        ]
        config["tools"] = [types.Tool(function_declarations=declared)]
    instructions = words(rng) if rng.random() < 0.8 else ""
    if instructions:
        config["system_instruction"] = types.Content(parts=[types.Part(text=instructions)])
    max_output = rng.choice([1, 256, 8192, 65536])
    config.setdefault("max_output_tokens", max_output)
    model = rng.choice(["gemini-3-pro-preview", "gemini-2.5-flash", "tunedModels/mine-1"])
    sdk_config = types.GenerateContentConfig(**config)
    return Case(model, instructions, messages, tools, options, max_output, contents, sdk_config)


USAGE = [
    "promptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
]
USAGE += ["toolUsePromptTokenCount", "totalTokenCount"]
REASONS = ["STOP"] * 6 + [
    "MAX_TOKENS",
    "MAX_TOKENS",
    "SAFETY",
    "RECITATION",
    "PROHIBITED_CONTENT",
    "MALFORMED_FUNCTION_CALL",
]


def responses(rng: random.Random, most: int) -> list[dict[str, Any]]:
    """The chunks of one stream. Each says less or more of what real ones say beside their parts."""
    chunks: list[dict[str, Any]] = []
    result = pieces(rng, most)
    while result:
        piece_list, result = result[: (k := rng.randint(1, 2))], result[k:]
        candidate: dict[str, Any] = {"content": {"parts": [wire_part(p) for p in piece_list]}}
        if rng.random() < 0.3:
            candidate["content"]["role"] = "model"
        if rng.random() < 0.1:
            candidate |= {"index": 0, "avgLogprobs": -0.1}
        chunk: dict[str, Any] = {"candidates": [candidate]}
        if rng.random() < 0.3:
            chunk["modelVersion"] = rng.choice(["gemini-3-pro", "gemini-2.5-flash-001"])
        if rng.random() < 0.15:
            chunk["usageMetadata"] = {
                name: rng.randrange(10**5) for name in rng.sample(USAGE, rng.randint(0, 3))
            }
        if rng.random() < 0.1:
            chunk["responseId"] = "r1"
        chunks.append(chunk)
    last = chunks[-1] if rng.random() < 0.6 else {"candidates": [{}]}
    if last is not chunks[-1]:
        chunks.append(last)
    last["candidates"][0]["finishReason"] = rng.choice(REASONS)
    if rng.random() < 0.6:
        last["usageMetadata"] = {name: rng.randrange(10**4) for name in USAGE if rng.random() < 0.4}
    return chunks
