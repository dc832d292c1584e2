"""Tags and properties; tags that stand for a role (categorical, continuous, target) give it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.compat.merlin.schema.tags import listed, role_of, text_of
from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = [
    "AddMetadata",
    "AddProperties",
    "AddTags",
    "TagAsItemFeatures",
    "TagAsItemID",
    "TagAsUserFeatures",
    "TagAsUserID",
]


class AddMetadata(Placed, native.AddMetadata):
    """Add tags (texts or `Tags`) and properties to the columns' schema.

    >>> from penstock.compat.merlin.schema import Tags
    >>> op = AddMetadata(tags=[Tags.TARGET, "clicks"])
    >>> op.tags, op.role
    (['clicks'], <Role.LABEL: 'label'>)
    """

    saved_as = native.AddMetadata

    def __init__(self, tags: Any = None, properties: Mapping[str, Any] | None = None) -> None:
        given = listed(tags)
        plain = [text_of(tag) for tag in given if role_of([tag]) is None]
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


class TagAsUserID(Placed, native.TagAsUserID):
    """Tag the column that identifies users.

    >>> TagAsUserID().added_tags()
    ('user_id', 'user')
    """

    saved_as = native.TagAsUserID


class TagAsItemID(Placed, native.TagAsItemID):
    """Tag the column that identifies items.

    >>> TagAsItemID().added_tags()
    ('item_id', 'item')
    """

    saved_as = native.TagAsItemID


class TagAsUserFeatures(Placed, native.TagAsUserFeatures):
    """Tag columns that describe users.

    >>> TagAsUserFeatures().added_tags()
    ('user',)
    """

    saved_as = native.TagAsUserFeatures


class TagAsItemFeatures(Placed, native.TagAsItemFeatures):
    """Tag columns that describe items.

    >>> TagAsItemFeatures().added_tags()
    ('item',)
    """

    saved_as = native.TagAsItemFeatures


__getattr__ = module_getattr(__name__)
