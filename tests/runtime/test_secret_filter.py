"""The filter of the log: no part of a record shows a secret, and no record is lost."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from retinue.core.redaction import Redactor
from retinue.runtime.secret_filter import Redacting

SECRET = "sk-0123456789-abcdef"
MARK = "[redacted:API_KEY]"


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    out = io.StringIO()
    stream = logging.StreamHandler(out)
    stream.setFormatter(
        logging.Formatter("%(levelname)s %(message)s %(extra)s", defaults={"extra": "-"})
    )
    stream.addFilter(Redacting(Redactor({"API_KEY": SECRET})))
    log = logging.getLogger("retinue.test_redact")
    log.addHandler(stream)
    log.propagate = False
    yield out
    log.removeHandler(stream)
    log.propagate = True


log = logging.getLogger("retinue.test_redact.below")


def test_a_secret_is_taken_out_of_message_arguments_and_extra_fields(out: io.StringIO) -> None:
    log.warning("key %s and %r", SECRET, [SECRET], extra={"extra": f"again {SECRET}"})
    log.warning(f"{SECRET} %d%%", 5)
    log.warning("nothing to hide, %d%%", 5)
    log.warning("a %s too few: %s", SECRET)
    text = out.getvalue()
    assert SECRET not in text
    assert text.splitlines()[:3] == [
        f"WARNING key {MARK} and ['{MARK}'] again {MARK}",
        f"WARNING {MARK} 5% -",
        "WARNING nothing to hide, 5% -",
    ]
    assert "too few" in text


def test_a_secret_is_taken_out_of_a_traceback_and_of_a_stack(out: io.StringIO) -> None:
    try:
        raise ValueError(f"the key was {SECRET}")
    except ValueError:
        log.exception("it failed", stack_info=True)
    assert SECRET not in out.getvalue()
    assert f"ValueError: the key was {MARK}" in out.getvalue()


def test_a_clean_record_keeps_its_arguments_for_other_handlers() -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "n = %d", (5,), None)
    assert Redacting(Redactor([SECRET])).filter(record)
    assert (record.msg, record.args) == ("n = %d", (5,))
