"""Writing data sets to parquet, several at a time: what they are made of in common is read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.params import NONE, Int, OneOf, check
from penstock.core.progress import bar
from penstock.data import writer
from penstock.data.bad_lines import BadLines, collecting
from penstock.data.codecs import codec_named
from penstock.engine import Engine, resolve
from penstock.engine.base import EngineLike

if TYPE_CHECKING:
    from penstock.data.dataset import Dataset


@dataclass(frozen=True)
class ParquetSettings:
    """How data sets are written; the words are those of `Dataset.to_parquet`."""

    shuffle: str | bool | None = None
    seed: int = 0
    row_group_size: int = 250_000
    num_files: int | None = None
    partition_by: str | Sequence[str] | None = None
    compression: str = "none"
    overwrite: bool = False
    storage_options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        check("shuffle", self.shuffle, OneOf((None, False, True, "partition", "full")))
        check("row_group_size", self.row_group_size, Int(min=1))
        check("num_files", self.num_files, Int(min=1) | NONE)

    def for_writer(self) -> writer.ParquetOptions:
        """What the writer has to know."""
        hive = (self.partition_by,) if isinstance(self.partition_by, str) else tuple(self.partition_by or ())
        inside = self.seed if self.shuffle in (True, "partition") else None
        return writer.ParquetOptions(self.row_group_size, codec_named(self.compression).name, hive, inside)

    def arranged(self, data: Dataset, engine: Engine) -> Dataset:
        """The rows in the order and the partitions that are asked for."""
        source = data.shuffle(self.seed, engine=engine) if self.shuffle == "full" else data
        if self.num_files is not None and self.num_files > source.num_partitions:
            source = source.repartition(self.num_files)
        return source


def write_side_by_side(
    outputs: Sequence[tuple[Dataset, str | Path]],
    settings: ParquetSettings,
    engine: EngineLike = None,
    progress: bool | None = None,
) -> list[writer.WriteReport]:
    """Write data sets, each to its folder; the splits of one are written in a single pass over it.

    Args:
        outputs: data sets and where they go.
        settings: of all of them.
        engine: where the work runs.
        progress: draw a bar; None draws it on a terminal.

    Returns:
        What was written to each.

    >>> import tempfile
    >>> from penstock import Dataset
    >>> place = Path(tempfile.mkdtemp())
    >>> train, valid = Dataset({"x": list(range(10))}).split([0.8, 0.2])
    >>> reports = write_side_by_side([(train, place / "train"), (valid, place / "valid")], ParquetSettings())
    >>> [report.num_rows for report in reports]
    [8, 2]
    """
    engine, options = resolve(engine), settings.for_writer()
    arranged, early = [], []
    for data, _ in outputs:
        with collecting() as bad:  # a full shuffle reads the source now
            arranged.append(settings.arranged(data, engine))
        early.append(bad)
    parts = [source.partitions for source in arranged]
    wanted = [
        writer.Output(own, source.schema, str(path))
        for own, source, (_, path) in zip(parts, arranged, outputs, strict=True)
    ]
    with bar("write", sum(part.estimated_rows for own in parts for part in own), show=progress) as drawn:
        reports = writer.write_parquet(
            wanted, options, settings.num_files, engine, settings.overwrite, drawn.advance, settings.storage_options
        )
    found = BadLines()
    for report, bad in zip(reports, early, strict=True):
        report.bad_lines.add(bad)
        found.add(report.bad_lines)
    found.warn()
    return reports
