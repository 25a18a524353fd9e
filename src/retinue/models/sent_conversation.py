"""Selects what of a conversation is sent to a model. Seals (signatures of thoughts, encrypted
reasoning) go only to the model that made them, at the address where it did; pictures only where
they are taken. What a provider has refused is not sent to it again, if leaving it out has helped.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

from msgspec.structs import replace

from retinue.core.history import Conversation, ShownMessages
from retinue.core.image_checks import ImageFacts, image_facts, in_words
from retinue.core.messages import AssistantMessage, Image, Message, ToolMessage, UserMessage
from retinue.errors import ModelError
from retinue.models.codec import Codec, Options
from retinue.models.seal_checks import ITEM, MANY, PICTURES, SEALS, is_whole

LARGEST = {"anthropic": (5 << 20, 8_000)}
"""Bytes of a picture in base64, and pixels of a side, that a dialect's provider takes."""
AT = " at "
PLACE = re.compile(r" at ([0-9a-f]{12})$")
REFUSED = "the model's provider rejected it"
NOTHING: frozenset[int] = frozenset()


class Unit(Protocol):
    """How a unit of a conversation is written."""

    def __call__(self, messages: Sequence[Message], *, mark: bool = False) -> bytes: ...


class Cure:
    """What is omitted from one request after it was refused. It is remembered for the conversation
    only if the request is answered then: words like "signature" and "image" are also in refusals
    that have another reason."""

    def __init__(self) -> None:
        self.is_sent_anew = False
        self.bare: list[Conversation] = []
        self.pictures: set[int] = set()
        self.known = NOTHING


class Outgoing:
    """The conversations of one model (`maker`: its provider and its name there) in the words of a
    codec."""

    def __init__(self, codec: Codec, maker: str, place: str = "") -> None:
        self._codec, self._maker, self.place = codec, maker, place
        self._variant = f"{_variant(codec)} {maker}"
        self._bare: WeakSet[Conversation] = WeakSet()
        self._has_bare = False
        self._refused: set[int] = set()
        self._kinds: dict[tuple[str, int, bool], str] = {}
        self._taken: WeakKeyDictionary[Conversation, int] = WeakKeyDictionary()

    def way(self, history: ShownMessages) -> tuple[str, Unit]:
        """How a conversation is written. What is written under the same name is the same, and can
        be kept."""
        key, unit = (self.place, 0, False), self.unit
        if self._refused or self._has_bare:
            is_bare = self.is_bare(history)
            unit = self.bare_unit if is_bare else self.unit
            key = (self.place, hash(frozenset(self._refused)) if self._refused else 0, is_bare)
        if (kind := self._kinds.get(key)) is None:
            kind = self._kinds[key] = (
                f"{self._variant} {self.place} {key[1]} {'bare' if key[2] else 'sealed'}"
            )
        return kind, unit

    def is_bare(self, history: ShownMessages) -> bool:
        """Whether seals were refused in this conversation, or in the one that it came from."""
        one: Conversation | None = history.conversation
        while one is not None and self._has_bare:
            if one in self._bare:
                return True
            one = one.base
        return False

    def unit(self, messages: Sequence[Message], *, mark: bool = False) -> bytes:
        for message in messages:
            if message.opaque if isinstance(message, AssistantMessage) else message.images:
                break
        else:
            return self._codec.unit(messages, mark=mark)
        return self._codec.unit([self._fit(m, is_bare=False) for m in messages], mark=mark)

    def bare_unit(self, messages: Sequence[Message], *, mark: bool = False) -> bytes:
        return self._codec.unit([self._fit(m, is_bare=True) for m in messages], mark=mark)

    def sealed(self, message: AssistantMessage, place: str) -> AssistantMessage:
        """A reply as it is kept: its seals with the name of their maker, and with the place that it
        answered from."""
        if not message.opaque:
            return message
        owner, newline, seal = message.opaque.partition("\n")
        named = f"{owner} {self._maker}{AT}{place}" if place else f"{owner} {self._maker}"
        return replace(message, opaque=f"{named}\n{seal}") if newline else message

    def took(self, history: ShownMessages) -> None:
        """A request was answered: whatever pictures it had are taken."""
        self._taken[history.conversation] = history.stop

    def left_out(self) -> frozenset[int]:
        """What a request that is about to be written leaves out."""
        return frozenset(self._refused) if self._refused else NOTHING

    def cure(self, history: ShownMessages, error: ModelError, cure: Cure) -> bool:
        """Omit what was refused; returns whether that is something new, so that it is worth another
        try. (Servers at home refuse a picture with a 500.)"""
        if error.kind == "too_large":
            return self._refuse_pictures(history, cure, is_many=True)
        if error.kind not in ("invalid_request", "not_found", "server_error"):
            return False
        is_seal = SEALS.search(str(error)) and (
            error.kind != "not_found" or ITEM.search(str(error))
        )
        if is_seal and not self.is_bare(history):
            cure.bare.append(history.conversation)
            self._bare.add(history.conversation)
            self._has_bare = True
            return True
        is_many = MANY.search(str(error)) is not None
        return bool(PICTURES.search(str(error))) and self._refuse_pictures(
            history, cure, is_many=is_many
        )

    def forget(self, cure: Cure) -> None:
        """The request was refused all the same, or came to nothing: what was omitted was not the
        reason."""
        for conversation in cure.bare:
            self._bare.discard(conversation)
        self._refused -= cure.pictures

    def options(self, options: Options, history: ShownMessages) -> Options:
        """Anthropic's models cannot continue thinking where the seals of their thoughts are
        omitted."""
        is_off = (
            options.thinking_tokens and self._codec.dialect == "anthropic" and self.is_bare(history)
        )
        return replace(options, thinking_tokens=None) if is_off else options

    def _fit(self, message: Message, *, is_bare: bool) -> Message:
        if isinstance(message, AssistantMessage):
            return self._with_own_seals(message, is_bare=is_bare)
        if not message.images:
            return message
        words, pictures = [], []
        for image in message.images:
            looks = image_facts(image)
            if why := self._why_not(image, looks):
                words.append(in_words(image, why))
            else:
                pictures.append(replace(image, media_type=looks.media_type))
        text = "\n".join([*([message.text] if message.text else []), *words])
        return replace(message, text=text, images=tuple(pictures))

    def _with_own_seals(self, message: AssistantMessage, *, is_bare: bool) -> AssistantMessage:
        if is_bare:
            return self._codec.unsealed(replace(message, opaque=""))
        if not message.opaque:
            return message
        owner, newline, seal = message.opaque.partition("\n")
        dialect, _, maker = owner.partition(" ")
        if not newline:
            return message
        if (match := PLACE.search(maker)) is not None:
            maker = maker[: match.start()]
        # Stores of earlier versions do not name the maker, or not where it was.
        is_here = match is None or match[1] == self.place
        is_own = (
            dialect == self._codec.dialect
            and maker in ("", self._maker)
            and is_here
            and is_whole(seal, dialect)
        )
        return replace(message, opaque=f"{dialect}\n{seal}" if is_own else "")

    def _why_not(self, image: Image, looks: ImageFacts) -> str:
        if hash(image.data) in self._refused:
            return REFUSED
        most, side = LARGEST.get(self._codec.dialect, (1 << 62, 1 << 62))
        if not looks.wrong and len(image.data) > most:
            return f"this model accepts at most {most} bytes"
        if not looks.wrong and max(looks.width, looks.height) > side:
            return f"it is {looks.width} x {looks.height}, and this model accepts at most {side}"
        return looks.wrong

    def _refuse_pictures(self, history: ShownMessages, cure: Cure, *, is_many: bool) -> bool:
        """Those that came since the last reply; when there is none among them, or they were not the
        reason, all. Where they are too many, those that came before: the model has seen them."""
        one, n_known = history.conversation, 0
        while one is not None:
            if one in self._taken:
                n_known = min(self._taken[one], history.stop)
                break
            one = one.base if one.base is not None else None  # type: ignore[assignment]
        # Another request may have been refused meanwhile for the same ones: they were in this one
        # too.
        fresh = _pictures(history, max(history.start, n_known)) - cure.known
        every = _pictures(history, history.start) - cure.known
        pictures = ((every - fresh) if is_many else set()) or fresh or every
        cure.pictures |= pictures - self._refused
        self._refused |= pictures
        return bool(pictures)


def _pictures(history: ShownMessages, start: int) -> set[int]:
    messages = history.conversation.read(start, history.stop)
    return {
        hash(i.data) for m in messages if isinstance(m, UserMessage | ToolMessage) for i in m.images
    }


def _variant(codec: Codec) -> str:
    """Codecs of one dialect with equal settings write the same: what one has written the others can
    use."""
    fields: tuple[Any, ...] = dataclasses.fields(codec) if dataclasses.is_dataclass(codec) else ()
    return f"{codec.dialect} {[getattr(codec, f.name) for f in fields]}"
