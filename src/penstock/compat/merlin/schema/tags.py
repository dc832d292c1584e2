"""Tags: what a column is to a model, and to whom it belongs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

from penstock.core.errors import SchemaError
from penstock.core.schema import Role

__all__ = ["COMPOUND_TAGS", "TAG_COLLISIONS", "TagSet", "Tags", "TagsType"]


class Tags(Enum):
    """Merlin's standard tags; any text is a tag as well.

    >>> Tags("user_id") is Tags.USER_ID
    True
    """

    CATEGORICAL = "categorical"
    CONTINUOUS = "continuous"
    LIST = "list"
    SEQUENCE = "sequence"
    TEXT = "text"
    TOKENIZED = "tokenized"
    TIME = "time"
    EMBEDDING = "embedding"
    ID = "id"
    USER = "user"
    ITEM = "item"
    SESSION = "session"
    CONTEXT = "context"
    TARGET = "target"
    REGRESSION = "regression"
    CLASSIFICATION = "classification"
    BINARY = "binary"
    MULTI_CLASS = "multi_class"
    USER_ID = "user_id"
    ITEM_ID = "item_id"
    SESSION_ID = "session_id"
    TEXT_TOKENIZED = "text_tokenized"
    BINARY_CLASSIFICATION = "binary_classification"
    MULTI_CLASS_CLASSIFICATION = "multi_class_classification"


TAG_COLLISIONS = {
    Tags.CATEGORICAL: {Tags.CONTINUOUS, Tags.EMBEDDING},
    Tags.CONTINUOUS: {Tags.CATEGORICAL, Tags.EMBEDDING, Tags.ID},
    Tags.EMBEDDING: {Tags.CONTINUOUS, Tags.CATEGORICAL, Tags.ID},
    Tags.ID: {Tags.CONTINUOUS, Tags.EMBEDDING},
}
COMPOUND_TAGS = {
    Tags.USER_ID: (Tags.USER, Tags.ID),
    Tags.ITEM_ID: (Tags.ITEM, Tags.ID),
    Tags.SESSION_ID: (Tags.SESSION, Tags.ID),
    Tags.TEXT_TOKENIZED: (Tags.TEXT, Tags.TOKENIZED),
}
TARGETS = {Tags.TARGET, Tags.REGRESSION, Tags.CLASSIFICATION, Tags.BINARY, Tags.BINARY_CLASSIFICATION,
            Tags.MULTI_CLASS, Tags.MULTI_CLASS_CLASSIFICATION}  # fmt: skip
ROLE_TAGS = {Role.CATEGORICAL: Tags.CATEGORICAL, Role.CONTINUOUS: Tags.CONTINUOUS, Role.LABEL: Tags.TARGET}


class TagSet:
    """Tags of a column, without pairs that exclude one another; a tag of two parts is held as its parts.

    >>> Tags.USER_ID in TagSet(["user", "id"]), Tags.CATEGORICAL in TagSet(["continuous"]).override("categorical")
    (True, True)
    """

    def __init__(self, tags: Any = None) -> None:
        given = [] if isinstance(tags, TagSet) else [as_tag(tag) for tag in listed(tags)]
        for tag in (tag for tag in given if tag in COMPOUND_TAGS):
            parts = " and ".join(str(part) for part in COMPOUND_TAGS[tag])
            warnings.warn(f"compound tags like {tag} are deprecated in Merlin: use {parts}", UserWarning, stacklevel=2)
        self._set(tags)

    def _set(self, tags: Any) -> None:
        self._tags: frozenset[Tags | str] = _normalized(listed(tags))
        if clashes := self._clashes(self._tags):
            names = ", ".join(sorted(text_of(tag) for tag in clashes))
            raise SchemaError(f"these tags of a column are incompatible: {names} exclude one another")

    @classmethod
    def _of(cls, tags: Iterable[Any]) -> TagSet:
        """A set of tags that were given before, or that Penstock wrote: nobody is told that they are old."""
        made = cls.__new__(cls)
        made._set(tags)
        return made

    def override(self, tags: Any) -> TagSet:
        """With further tags, and without those that these exclude."""
        added = TagSet(tags)
        return TagSet._of((self._tags - added._excluded()) | added._tags)

    def _excluded(self) -> set:
        return {other for tag in self._tags if isinstance(tag, Tags) for other in TAG_COLLISIONS.get(tag, ())}

    def _clashes(self, tags: frozenset) -> set:
        return self._excluded() & tags

    def __iter__(self) -> Iterator[Tags | str]:
        return iter(sorted(self._atoms(), key=text_of))

    def __contains__(self, tag: object) -> bool:
        known = as_tag(tag)
        if parts := COMPOUND_TAGS.get(known):  # a column of [ITEM, ID] is one of ITEM_ID
            return all(part in self._tags for part in parts)
        return tag in self._tags or known in self._tags

    def __len__(self) -> int:
        return len(self._atoms())

    def __add__(self, tags: Any) -> TagSet:
        return TagSet._of(self._tags | TagSet(tags)._tags)

    def __sub__(self, tags: Any) -> TagSet:
        return TagSet._of(self._tags - _normalized(listed(tags)))

    def __eq__(self, other: object) -> bool:
        """Whether both mean the same: `USER_ID` is `USER` and `ID`."""
        return isinstance(other, (TagSet, list, set, tuple)) and self._atoms() == TagSet(other)._atoms()

    def _atoms(self) -> frozenset:
        return self._tags - set(COMPOUND_TAGS)

    def __hash__(self) -> int:
        return hash(self._atoms())

    def __repr__(self) -> str:
        return "{" + ", ".join(repr(tag) for tag in self) + "}" if self._tags else "set()"


TagsType = TagSet | list[str] | list[Tags] | list[Tags | str]


def as_tag(tag: Any) -> Any:
    """The standard tag that a text names, or what was given.

    >>> as_tag("item"), as_tag("mine")
    (<Tags.ITEM: 'item'>, 'mine')
    """
    if isinstance(tag, str):
        name = tag.removeprefix("Tags.").lower()
        return Tags(name) if name in Tags._value2member_map_ else tag
    return tag


def text_of(tag: Any) -> str:
    """A tag as Penstock writes it."""
    return tag.value if isinstance(tag, Tags) else str(tag)


def listed(tags: Any) -> list:
    """One tag, several or none, as a list."""
    if tags is None:
        return []
    if isinstance(tags, (str, Tags)):
        return [tags]
    return list(tags)


def role_of(tags: Iterable[Any]) -> Role | None:
    """The role that tags give a column; None where they say nothing of it.

    >>> role_of([Tags.USER, Tags.CATEGORICAL]), role_of(["binary_classification"]), role_of([Tags.USER])
    (<Role.CATEGORICAL: 'categorical'>, <Role.LABEL: 'label'>, None)
    """
    found = {as_tag(tag) for tag in tags}
    if found & TARGETS:
        return Role.LABEL
    return next((role for role, tag in ROLE_TAGS.items() if tag in found), None)


def roles_and_tags(tags: Any) -> tuple[list[Role], list[str]]:
    """What to select by: the roles that some tags stand for in Penstock, and all tags as text."""
    roles = [role for tag in listed(tags) if (role := role_of([tag])) is not None]
    return roles, [text_of(as_tag(tag)) for tag in listed(tags)]


def _normalized(tags: Iterable[Any]) -> frozenset:
    found = {as_tag(tag) for tag in tags}
    return frozenset(found | {part for tag in found for part in COMPOUND_TAGS.get(tag, ())})
