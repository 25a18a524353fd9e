"""Words that programmers use for one another, and what of a question is no topic. Used to widen a
search, never to claim that two words mean the same."""

from __future__ import annotations

import re

_STOP = """
    a about after all already also am an and any are as at be been before being between both but by
    can code codebase could did do does doing done each every explain file files find for from
    function functions get gets give go goes grep had handle handled handles handling happen
    happening happens has have help here how i if implement implementation implemented implements
    in into is it its just kind know like line lines locate logic look made make makes me method
    module my need needs of on one or other our out over part parts place places please point
    project put repo repository search see she should show some somewhere source such tell than
    that the their them then there these they thing this those to up us use used uses using very
    want was we were what when where which while who why will with work working works would you
    your
"""
STOP = frozenset(_STOP.split())
GROUPS: tuple[frozenset[str], ...] = tuple(
    frozenset(group.split())
    for group in """
    error exception failure fail fault panic catch raise throw recover
    retry retries backoff attempt again
    auth authenticate authentication authorize authorization login signin token credential \
permission oauth session
    config configuration settings setting option preferences env environ
    log logging logger trace tracing
    cache memoize lru caching
    database db sql query store storage persist repository
    save write persist store dump
    load read parse open
    delete remove drop unlink destroy erase
    create make new build construct add insert
    update change modify edit patch set
    send post publish emit dispatch deliver
    receive consume subscribe listen handle
    parse decode deserialize unmarshal
    serialize encode marshal dump
    http request response route router endpoint url
    test spec assert mock fixture
    validate validation check verify assert
    timeout deadline expire ttl cancel
    cancel abort stop kill interrupt
    queue job worker task schedule scheduler
    thread async concurrent parallel lock mutex
    lock mutex semaphore
    encrypt decrypt cipher crypto hash sign
    secret key password token credential
    user account member profile
    payment billing invoice charge price
    email mail smtp notify notification
    render template view html
    command cli argument argparse flag
    start launch boot init initialize main run
    version release changelog
    migrate migration schema
    rate limit throttle quota
    metric metrics monitor telemetry
    upload download transfer fetch
    import export
    sort order rank
    filter select where
    connect connection socket client
    server serve listen
    event signal hook callback
    plugin extension addon
    permission access role policy acl
    translate i18n locale language
    date time clock timestamp
    shutdown close dispose cleanup teardown
    """.strip().splitlines()
)
_SHORT = frozenset(("db", "ttl", "cli", "acl", "env", "sql", "lru", "log", "http"))
_SUFFIXES = (
    "izations",
    "ization",
    "ations",
    "ation",
    "ingly",
    "ings",
    "ing",
    "edly",
    "ies",
    "ers",
    "ed",
    "er",
    "es",
    "s",
    "ly",
)


def split_identifier(word: str) -> list[str]:
    """`maxRetries_left` as max, retries, left."""
    spaced = re.sub(r"([a-z0-9])([A-Z])|([A-Z]+)([A-Z][a-z])", r"\1\3 \2\4", word)
    return [w.lower() for w in re.split(r"[^A-Za-z0-9]+|\s+", spaced) if w]


def stem(word: str) -> str:
    """A rough stem: long enough to mean the word, short enough to find its forms."""
    low = word.lower()
    for suffix in _SUFFIXES:
        if low.endswith(suffix) and len(low) - len(suffix) >= 3:
            low = low[: -len(suffix)]
            if len(low) > 3 and low[-1] == low[-2] != "s":
                low = low[:-1]
            break
    return low[:-1] if low[-1:] in ("y", "e") and len(low) > 4 else low


def topics(question: str) -> list[str]:
    """The words of a question that say what it is about, in their order."""
    quoted = re.findall(r"`([^`]+)`|\"([^\"]+)\"", question)
    words = [w for pair in quoted for q in pair for w in split_identifier(q)]
    words += [
        w for raw in re.findall(r"[A-Za-z_][A-Za-z0-9_]+", question) for w in split_identifier(raw)
    ]
    kept = [w for w in dict.fromkeys(words) if w not in STOP and len(w) > 1 and not w.isdigit()]
    return kept[:8]


def widen(words: list[str]) -> dict[str, float]:
    """Stems with their weights: what was asked for counts whole, a synonym less than half."""
    out: dict[str, float] = {}
    for word in words:
        out.setdefault(stem(word), 1.0)
    for word in words:
        mine = stem(word)
        for group in GROUPS:
            if any(stem(w) == mine for w in group):
                for other in sorted(group):
                    out.setdefault(stem(other), 0.4)
    return {s: w for s, w in out.items() if len(s) >= 4 or w == 1.0 or s in _SHORT}
