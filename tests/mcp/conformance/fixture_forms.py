"""The forms that two scenarios of the suite want to see: every kind of default, every kind of
choice."""

from __future__ import annotations

from typing import Any

ONE_TO_THREE = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
FORMS: dict[str, dict[str, Any]] = {
    "test_elicitation_sep1034_defaults": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    },
    "test_elicitation_sep1330_enums": {
        "untitledSingle": {"type": "string", "enum": ONE_TO_THREE},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ONE_TO_THREE}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}


def form_params(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": FORMS[name]}
    return {"mode": "form", "message": "Please fill in.", "requestedSchema": schema}
