"""An editor, made of the client of the official package, over a real process of `retinue acp`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

from acp import PROTOCOL_VERSION, schema, spawn_agent_process, text_block

from tests.cli.private_home import PrivateHome
from tests.waiting import PATIENT

FORMS = schema.ClientCapabilities(
    elicitation=schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities())
)


class Editor:
    """Keeps what it is sent. `choices` are the ids of the options that its user picks, in turn;
    `answers` what the user writes into forms."""

    def __init__(self, *choices: str, answers: tuple[str, ...] = ()) -> None:
        self.choices, self.answers = list(choices), list(answers)
        self.updates: list[Any] = []
        self.permissions: list[tuple[schema.ToolCallUpdate, list[schema.PermissionOption]]] = []
        self.forms: list[str] = []
        self.agent: Any = None
        self.process: Any = None

    def on_connect(self, conn: Any) -> None:
        self.agent = conn

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **kwargs: Any
    ) -> schema.RequestPermissionResponse:
        self.permissions.append((tool_call, options))
        outcome: Any = schema.DeniedOutcome(outcome="cancelled")
        if self.choices:
            outcome = schema.AllowedOutcome(outcome="selected", option_id=self.choices.pop(0))
        return schema.RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(self, message: str, mode: Any, **kwargs: Any) -> Any:
        self.forms.append(message)
        return schema.AcceptElicitationResponse(
            action="accept", content={"answer": self.answers.pop(0)}
        )

    # what it was sent

    def of(self, *kinds: str) -> list[Any]:
        return [update for update in self.updates if update.session_update in kinds]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update.content.text for update in self.of(kind))

    @property
    def plan(self) -> list[tuple[str, str]]:
        plans = self.of("plan")
        return [(entry.content, entry.status) for entry in plans[-1].entries] if plans else []

    def statuses(self, id: str) -> list[str]:
        """Of one tool call, in the order of its updates."""
        calls = self.of("tool_call", "tool_call_update")
        return [c.status for c in calls if c.tool_call_id == id and c.status is not None]

    # what it asks for

    async def prompt(self, session: str, text: str) -> schema.PromptResponse:
        reply: schema.PromptResponse = await self.agent.prompt(
            session_id=session, prompt=[text_block(text)]
        )
        return reply


@contextlib.asynccontextmanager
async def opened(
    home: PrivateHome,
    editor: Editor,
    *arguments: str,
    capabilities: schema.ClientCapabilities | None = None,
) -> AsyncIterator[Editor]:
    """The editor with its agent started and initialized."""
    command = (sys.executable, "-m", "retinue", "acp", *arguments)
    async with spawn_agent_process(
        editor, *command, env={**PATIENT, **home.env}, cwd=home.project, use_unstable_protocol=True
    ) as (agent, process):
        editor.agent, editor.process = agent, process
        await agent.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=capabilities,
            client_info=schema.Implementation(name="zed", title="Zed", version="1"),
        )
        yield editor


async def new_session(home: PrivateHome, editor: Editor, **more: Any) -> str:
    session = await editor.agent.new_session(cwd=str(home.project), mcp_servers=[], **more)
    return str(session.session_id)
