"""The `input` section of a recipe: how to open raw files that do not describe themselves.

    input:
      format: tsv                      # one of `data.formats.FORMATS`; used where the file names do not tell
      names: [label, I1, C1]           # of text without a header
      dtypes: {int32: [label, I1], hex32: [C1]}
      separator: "\\t"
      header: false
      quote: ""                        # none; by default told from the file, as separator, header and encoding are
      encoding: cp1252
      missing: [NA, "-"]               # words that stand for no value
      roles: {label: [label], continuous: [I1], categorical: [C1]}

Every key may be left out. A workflow takes any data with its columns; it only keeps the section (`workflow.input`), so
that whoever has the saved workflow can read raw files as they were read when it was fitted.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.errors import ColumnNotFoundError, ParameterError, suggest
from penstock.core.schema import Role
from penstock.data import Dataset
from penstock.data.dataset import as_dataset
from penstock.data.finding import find, infer_format
from penstock.data.formats import FORMATS, format_of_name, is_text
from penstock.data.sources import DataLike, are_paths, paths_of

_TEXT_ONLY = ("names", "dtypes", "separator", "header", "quote", "encoding", "missing")
KEYS = ("format", *_TEXT_ONLY, "roles")


def open_input(
    source: DataLike,
    section: Mapping[str, Any] | None = None,
    *,
    may_lack: bool = False,
    **options: Any,
) -> Dataset:
    """The data set at `source`, read as the section says; `options` are passed to `Dataset`.

    Names, dtypes and separator concern text: parquet and Arrow files, frames and open data sets bring their own. The
    roles of a data set, or of a schema saved beside the data, win over those of the section. With `may_lack`, columns
    that the section names need not be there: rows to predict have no label.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "clicks.tsv"
    >>> _ = file.write_text("1\\t68fd1e64\\n0\\t\\n")
    >>> data = open_input(str(file), {"names": ["label", "C1"], "dtypes": {"int32": ["label"], "hex32": ["C1"]}})
    >>> data.to_polars().rows()
    [(1, 1761418852), (0, None)]
    """
    section = checked(section or {})
    data = _read(paths_of(source), section, may_lack, options) if are_paths(source) else as_dataset(source, **options)
    return _with_roles(data, section.get("roles", {}), may_lack)


def _read(source: str | list[str], section: Mapping[str, Any], may_lack: bool, options: Mapping[str, Any]) -> Dataset:
    kind = _format(source, section)
    settings = {key: section[key] for key in _TEXT_ONLY if key in section} if is_text(kind) else {}
    if "dtypes" in settings:
        settings["dtypes"] = column_dtypes(settings["dtypes"])
        if "separator" in settings and "names" not in settings:
            settings = _with_own_separator(source, kind, settings, options)
        if may_lack and "names" not in settings:
            there = Dataset(source, format=kind, **{**settings, "dtypes": None}).schema
            settings["dtypes"] = {name: dtype for name, dtype in settings["dtypes"].items() if name in there}
    return Dataset(source, format=kind, **settings, **options)


def _with_own_separator(
    source: str | list[str], kind: str | None, settings: dict[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings; for files whose columns show only with another separator than the one that is said, with theirs."""
    first = find([source] if isinstance(source, str) else source)[0]
    columns, said = settings["dtypes"], {key: value for key, value in settings.items() if key != "dtypes"}
    own = {key: value for key, value in said.items() if key not in ("separator", "quote")}
    with warnings.catch_warnings():  # which are given where the data is opened
        warnings.simplefilter("ignore")
        if any(name in Dataset(first, format=kind, **said, **options).schema for name in columns):
            return settings
        told = Dataset(first, format=kind, **own, **options)
    if told.layout is None or not any(name in told.schema for name in columns):
        return settings
    warnings.warn(
        f"{first}: read with separator {told.layout.file_separator!r}; with that of the recipe, "
        f"{settings['separator']!r}, it has none of the columns",
        stacklevel=4,
    )
    return {**own, "dtypes": columns, "separator": told.layout.file_separator}


def settled(section: Mapping[str, Any] | None, data: Dataset, names: Sequence[str]) -> dict[str, Any] | None:
    """The section with the dtypes that were found in text: whoever reads other files reads these columns the same.

    Args:
        section: as the recipe has it, or None.
        data: opened with it.
        names: the columns that matter.

    Returns:
        A section, or None where there was none and none is needed.
    """
    layout = data.layout
    if layout is None:
        return None if section is None else dict(section)
    given = column_dtypes((section or {}).get("dtypes", {}))
    found = {name: layout.dtypes[name] for name in layout.names if name in names and name not in given}
    if not found:
        return None if section is None else dict(section)
    by_dtype: dict[str, list[str]] = {}
    for name, dtype in {**given, **found}.items():
        by_dtype.setdefault(str(dtype), []).append(name)
    return {**(section or {}), "dtypes": by_dtype}


def checked(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section, once its keys are known to mean something."""
    if not isinstance(section, Mapping):
        raise ParameterError(f"the recipe's input must be a mapping of {', '.join(KEYS)}, got {section!r}")
    for key in section:
        if key not in KEYS:
            raise ParameterError(f"unknown key {key!r} in the recipe's input{suggest(str(key), KEYS, 'keys')}")
    roles = section.get("roles", {})
    if not isinstance(roles, Mapping) or any(role not in list(Role) for role in roles):
        raise ParameterError(f"input.roles must be {{role: columns}} with roles {', '.join(Role)}, got {roles!r}")
    return section


def column_dtypes(dtypes: Mapping[str, Any]) -> dict[str, str]:
    """`{column: dtype}` from the short form `{dtype: [columns]}`, or from the long form as it is.

    >>> column_dtypes({"hex32": ["C1", "C2"], "price": "float32"})
    {'C1': 'hex32', 'C2': 'hex32', 'price': 'float32'}
    """
    out: dict[str, str] = {}
    for key, value in dtypes.items():
        out.update(dict.fromkeys(value, key) if isinstance(value, (list, tuple)) else {key: value})
    return out


def _format(source: str | Sequence[str], section: Mapping[str, Any]) -> str | None:
    """What the section says, for files whose names say nothing (`day_0`) or some text (`day.txt`), else their names.

    A recipe for text thus also takes the same columns as parquet.
    """
    files = find([source] if isinstance(source, str) else list(source))
    kinds = {format_of_name(file) for file in files}
    said = section.get("format")
    if (
        said is not None
        and kinds <= {None} | {name for name in FORMATS if is_text(name)}
        and (is_text(said) or kinds == {None})
    ):
        return str(said)
    return infer_format(files) if kinds == {None} else format_of_name(files[0])


def _with_roles(data: Dataset, roles: Mapping[str, Any], may_lack: bool) -> Dataset:
    schema, listed = data.schema, {role: [n] if isinstance(n, str) else list(n) for role, n in roles.items()}
    for role, names in listed.items():
        for name in names:
            if name not in schema and not may_lack:
                where = f"{data.place} (the recipe's input.roles.{role} names it)"
                raise ColumnNotFoundError(str(name), schema.names, where)
    given = {role: [n for n in names if n in schema and schema[n].role is Role.OTHER] for role, names in listed.items()}
    return data.with_roles(**given)
