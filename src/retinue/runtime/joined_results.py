"""The results of joined children: their text, and their changes in the files."""

from __future__ import annotations

import logging

from retinue.core.answer_layout import Laid
from retinue.core.effects import FormatResults, Merge
from retinue.core.events import Merged, ResultsFormatted
from retinue.core.merges import BranchMerge, branch_name
from retinue.core.notices import plain_page
from retinue.runtime.long_texts import Texts
from retinue.runtime.tool_runner import ToolRunner

log = logging.getLogger("retinue.tools")


async def format_results(
    effect: FormatResults, agent: str, tools: ToolRunner, texts: Texts
) -> ResultsFormatted:
    """The results of each call in the words of its tool. One that fails is an error result."""
    lines, failed = [], False
    for joined in effect.calls:
        try:
            if joined.plain:
                laid: str | Laid = plain_page(joined.outcomes)
            else:
                laid = tools.format_results(agent, joined.name, joined.outcomes)
            text = await texts.cut(laid)
        except Exception as error:
            log.exception("tool %s could not compose its results", joined.name)
            text = f"The results could not be composed: {type(error).__name__}: {error}"
            failed = True
        lines.append((joined.index, joined.call_id, joined.name, text))
    return ResultsFormatted(turn=effect.turn, calls=tuple(lines), error=failed)


async def merge_changes(effect: Merge, tools: ToolRunner) -> Merged:
    """What became of the changes. Whatever goes wrong, they are on their branches."""
    try:
        merges = await tools.merge(effect.key, effect.copies)
    except Exception as error:
        log.exception("the changes of sub-agents of %s could not be merged", effect.run)
        why = f"{type(error).__name__}: {error}"
        merges = tuple(
            BranchMerge(
                run=copy.run,
                label=copy.label,
                state="kept",
                branch=branch_name(copy.label, copy.run),
                why=why,
            )
            for copy in effect.copies
        )
    return Merged(turn=effect.turn, indices=effect.indices, merges=merges)
