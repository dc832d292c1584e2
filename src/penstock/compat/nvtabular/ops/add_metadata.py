"""Tags and properties; tags that stand for a role (categorical, continuous, target) give it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.compat.merlin.schema.tags import ROLE_TAGS, as_tag, listed, role_of, text_of
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["AddMetadata", "AddProperties", "AddTags"]


class AddMetadata(Placed, native.AddMetadata):
    """Add tags (texts or `Tags`) and properties to the columns' schema.

    >>> from penstock.compat.merlin.schema import Tags
    >>> op = AddMetadata(tags=[Tags.TARGET, Tags.BINARY_CLASSIFICATION, "clicks"])
    >>> op.tags, op.role
    (['binary_classification', 'clicks'], <Role.LABEL: 'label'>)
    """

    def __init__(self, tags: Any = None, properties: Mapping[str, Any] | None = None) -> None:
        given = listed(tags)
        plain = [text_of(tag) for tag in given if as_tag(tag) not in ROLE_TAGS.values()]
        super().__init__(plain, dict(properties or {}), role_of(given))


class AddTags(AddMetadata):
    """Add tags.

    >>> AddTags("user").tags
    ['user']
    """

    def __init__(self, tags: Any = None) -> None:
        super().__init__(tags=tags)


class AddProperties(AddMetadata):
    """Add properties.

    >>> AddProperties({"unit": "EUR"}).properties
    {'unit': 'EUR'}
    """

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        super().__init__(properties=properties)
