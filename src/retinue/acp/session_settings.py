"""Settings of a session that the user can change in an editor: permission mode and model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from acp import schema

from retinue.acp.prompt_text import invalid

MODE, MODEL = "mode", "model"
MODE_TEXTS = {
    "manual": ("Ask first", "Edits, commands and network access ask first."),
    "acceptEdits": ("Accept edits", "Edits of files run without asking."),
    "plan": ("Plan", "The agent reads, and changes nothing."),
    "auto": ("Auto", "Edits, and commands in the sandbox, run without asking."),
    "dontAsk": ("Do not ask", "What would ask is denied."),
    "bypassPermissions": ("Bypass permissions", "Everything runs without asking."),
}


@dataclass
class SessionSettings:
    """The current mode and model of a session, and the models that it can have."""

    mode: str
    model: str
    models: tuple[str, ...]

    def set_mode(self, mode: str) -> None:
        if mode not in MODE_TEXTS:
            raise invalid(f"Unknown mode {mode!r}. The mode is still {self.mode}.")
        self.mode = mode

    def set_option(self, id: str, value: str | bool) -> None:
        """Set the mode or the model."""
        if id == MODE:
            self.set_mode(str(value))
        elif id != MODEL:
            raise invalid(f"Unknown option {id!r}. Known: {MODE}, {MODEL}.")
        elif value not in self.models:
            raise invalid(f"Unknown model {value!r}. The model is still {self.model}.")
        else:
            self.model = str(value)

    @property
    def modes(self) -> schema.SessionModeState:
        return schema.SessionModeState(
            current_mode_id=self.mode,
            available_modes=[
                schema.SessionMode(id=mode, name=name, description=about)
                for mode, (name, about) in MODE_TEXTS.items()
            ],
        )

    @property
    def options(self) -> list[schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean]:
        modes = [(mode, *texts) for mode, texts in MODE_TEXTS.items()]
        models = [(name, name, "") for name in self.models]
        return [
            _select(MODE, "Permission mode", self.mode, modes),
            _select(MODEL, "Model", self.model, models),
        ]


def _select(
    id: str, name: str, value: str, choices: Iterable[tuple[str, str, str]]
) -> schema.SessionConfigOptionSelect:
    return schema.SessionConfigOptionSelect(
        id=id,
        name=name,
        type="select",
        category="mode" if id == MODE else "model",
        current_value=value,
        options=[
            schema.SessionConfigSelectOption(value=value, name=name, description=about or None)
            for value, name, about in choices
        ],
    )
