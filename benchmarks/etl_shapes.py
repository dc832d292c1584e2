"""Claims `etl/SHAPE`: raw columns of other kinds than Criteo's to encoded parquet, beside the same job in polars.

`etl.py` measures one shape well. These are the others that people bring: text in CSV and in parquet, large ids, ids
that hardly repeat, lists, many amounts with gaps, statistics of groups, hundreds of columns. The peer is polars by
hand, wholly in memory; outputs are compared. Seconds and processor time are both there: a job that waits for one core
shows in the first, one that does too much in the second.

    python benchmarks/etl_shapes.py --shapes text_csv lists --scale 0.1
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from harness import Claim, best_of, report

FIRST_CODE = 3  # 0 is padding, 1 null, 2 unknown
GROUP = 250_000  # rows of a row group


@dataclass(frozen=True)
class Shape:
    """Rows of one kind, and what is done with them in both ways."""

    rows: int
    make: Callable[[int, np.random.Generator], pl.DataFrame]
    nodes: Callable[[], Any]  # of the workflow
    by_hand: Callable[[pl.DataFrame], pl.DataFrame]
    suffix: str = ".parquet"


def heavy_tailed(draw: np.random.Generator, rows: int, most: int) -> np.ndarray:
    return np.minimum(draw.pareto(0.6, rows) * 3, most - 1).astype(np.int64)


def names(letter: str, count: int) -> list[str]:
    return [f"{letter}{i}" for i in range(count)]


def labelled(columns: dict[str, Any], rows: int, draw: np.random.Generator) -> pl.DataFrame:
    return pl.DataFrame({**columns, "label": draw.integers(0, 2, rows, np.int32)})


def words(count: int) -> Callable[[int, np.random.Generator], pl.DataFrame]:
    def make(rows: int, draw: np.random.Generator) -> pl.DataFrame:
        texts = {n: "item_" + pl.Series(heavy_tailed(draw, rows, 50_000)).cast(pl.String) for n in names("c", count)}
        return labelled(texts | {n: draw.random(rows).round(4) for n in names("x", 3)}, rows, draw)

    return make


def large_ids(rows: int, draw: np.random.Generator) -> pl.DataFrame:
    ids = {n: heavy_tailed(draw, rows, 1_000_000) * 7919 + 10**12 for n in names("c", 10)}
    return labelled(ids | {n: draw.random(rows) for n in names("x", 10)}, rows, draw)


def unique_ids(rows: int, draw: np.random.Generator) -> pl.DataFrame:
    ids = {n: draw.integers(0, rows, rows) * 7919 + 10**12 for n in names("c", 5)}
    return labelled(ids | {n: draw.random(rows) for n in names("x", 5)}, rows, draw)


def lists(rows: int, draw: np.random.Generator) -> pl.DataFrame:
    lengths = draw.integers(0, 10, rows)
    row_of = np.repeat(np.arange(rows), lengths)
    flat = pl.DataFrame({"row": row_of} | {n: heavy_tailed(draw, len(row_of), 100_000) for n in names("c", 2)})
    grouped = pl.DataFrame({"row": np.arange(rows)}).join(
        flat.group_by("row", maintain_order=True).agg(pl.all()), on="row", how="left", maintain_order="left"
    )
    columns = {n: grouped[n].fill_null([]) for n in names("c", 2)}
    return labelled(columns | {"user": heavy_tailed(draw, rows, 100_000)}, rows, draw)


def amounts(rows: int, draw: np.random.Generator) -> pl.DataFrame:
    def one() -> pl.Series:
        return pl.Series(draw.random(rows) * 100).set(pl.Series(draw.random(rows) < 0.1), None)

    return labelled({n: one() for n in names("x", 60)}, rows, draw)


def groups(rows: int, draw: np.random.Generator) -> pl.DataFrame:
    keys = {n: heavy_tailed(draw, rows, 20_000) for n in names("c", 3)}
    return labelled(keys | {"x0": draw.random(rows)}, rows, draw)


def wide(rows: int, draw: np.random.Generator) -> pl.DataFrame:
    ids = {n: heavy_tailed(draw, rows, 200) for n in names("c", 300)}
    return labelled(ids | {n: draw.random(rows) for n in names("x", 300)}, rows, draw)


def codes_and_scaled(num_ids: int, num_amounts: int) -> Callable[[], Any]:
    def nodes() -> Any:
        from penstock import ops

        return (names("c", num_ids) >> ops.Categorify()) + (names("x", num_amounts) >> ops.Normalize()) + ["label"]

    return nodes


def codes_of_lists() -> Any:
    from penstock import ops

    return ([*names("c", 2), "user"] >> ops.Categorify()) + ["label"]


def logarithms() -> Any:
    from penstock import ops

    chain = names("x", 60) >> ops.FillMissing() >> ops.Clip(min_value=0) >> ops.LogOp() >> ops.Normalize()
    return chain + ["label"]


def statistics() -> Any:
    from penstock import ops

    return (names("c", 3) >> ops.JoinGroupby(cont_cols=["x0"], stats=["count", "mean", "sum"])) + ["label"]


def encoded(frame: pl.DataFrame, columns: list[str]) -> list[pl.Series]:
    """Codes by how often a value is seen: one count and one join a column, side by side."""
    counts = [
        frame.lazy()
        .select(pl.col(name).drop_nulls())
        .group_by(name)
        .len()
        .sort("len", name, descending=[True, False])
        .select(name, pl.int_range(FIRST_CODE, pl.len() + FIRST_CODE, dtype=pl.Int64).alias("code"))
        for name in columns
    ]
    joins = [
        frame.lazy().select(name).join(found.lazy(), on=name, how="left", maintain_order="left").select("code")
        for name, found in zip(columns, pl.collect_all(counts), strict=True)
    ]
    return [made["code"].alias(name) for name, made in zip(columns, pl.collect_all(joins), strict=True)]


def scaled(frame: pl.DataFrame, columns: list[str]) -> list[pl.Series]:
    means, deviations = frame.select(columns).mean().row(0), frame.select(columns).std().row(0)
    return frame.select(
        ((pl.col(n) - mean) / deviation).cast(pl.Float32)
        for n, mean, deviation in zip(columns, means, deviations, strict=True)
    ).get_columns()


def by_hand_codes(frame: pl.DataFrame) -> pl.DataFrame:
    ids, numbers = ([n for n in frame.columns if n[0] == letter] for letter in "cx")
    return pl.DataFrame([*encoded(frame, ids), *scaled(frame, numbers), frame["label"]])


def by_hand_lists(frame: pl.DataFrame) -> pl.DataFrame:
    made = []
    for name in names("c", 2):
        lengths = frame[name].list.len()
        flat = pl.DataFrame({name: frame[name].list.explode(empty_as_null=False)})
        offsets = np.concatenate([[0], np.cumsum(lengths.to_numpy())])
        made.append(as_lists(encoded(flat, [name])[0], offsets))
    return pl.DataFrame([*made, *encoded(frame, ["user"]), frame["label"]])


def as_lists(values: pl.Series, offsets: np.ndarray) -> pl.Series:
    import pyarrow as pa

    array = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values.to_arrow())
    return pl.Series(values.name, pl.from_arrow(array))


def by_hand_logarithms(frame: pl.DataFrame) -> pl.DataFrame:
    columns = names("x", 60)
    logs = frame.select(pl.col(columns).fill_null(0).clip(0).log1p())
    return pl.DataFrame([*scaled(logs, columns), frame["label"]])


def by_hand_statistics(frame: pl.DataFrame) -> pl.DataFrame:
    made = frame
    for key in names("c", 3):
        found = frame.group_by(key).agg(
            pl.len().cast(pl.Int64).alias(f"{key}_count"),
            pl.col("x0").mean().alias(f"{key}_x0_mean"),
            pl.col("x0").sum().alias(f"{key}_x0_sum"),
        )
        made = made.join(found, on=key, how="left", maintain_order="left")
    return made.drop(*names("c", 3), "x0")


SHAPES = {
    "text_csv": Shape(1_000_000, words(6), codes_and_scaled(6, 3), by_hand_codes, ".csv"),
    "text_parquet": Shape(2_000_000, words(6), codes_and_scaled(6, 3), by_hand_codes),
    "large_ids": Shape(2_000_000, large_ids, codes_and_scaled(10, 10), by_hand_codes),
    "unique_ids": Shape(2_000_000, unique_ids, codes_and_scaled(5, 5), by_hand_codes),
    "lists": Shape(1_000_000, lists, codes_of_lists, by_hand_lists),
    "amounts": Shape(500_000, amounts, logarithms, by_hand_logarithms),
    "groups": Shape(2_000_000, groups, statistics, by_hand_statistics),
    "wide": Shape(30_000, wide, codes_and_scaled(300, 300), by_hand_codes),
}


def processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured(name: str, scale: float, rounds: int, place: Path) -> Claim:
    from penstock import Dataset, Workflow

    shape = SHAPES[name]
    rows = max(1_000, int(shape.rows * scale))
    source, ours, theirs = place / f"raw{shape.suffix}", place / "ours", place / "theirs.parquet"
    frame = shape.make(rows, np.random.default_rng(0))
    if shape.suffix == ".csv":
        frame.write_csv(source)
    else:
        frame.write_parquet(source, compression="snappy", row_group_size=GROUP)
    del frame
    used: dict[str, float] = {}

    def timed(who: str, job: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            began = processor_time()
            job()
            used[who] = min(used.get(who, float("inf")), processor_time() - began)

        return run

    def penstock_job() -> None:
        data = Dataset(source)
        Workflow(shape.nodes()).fit(data).transform(data).to_parquet(ours, overwrite=True)

    def polars_job() -> None:
        read = pl.read_csv if shape.suffix == ".csv" else pl.read_parquet
        shape.by_hand(read(source)).write_parquet(theirs, compression="uncompressed", statistics=False)

    penstock_job()  # compiles its kernels before the clock runs
    seconds = best_of({"penstock": timed("penstock", penstock_job), "polars": timed("polars", polars_job)}, rounds)
    check_same(Dataset(ours).to_polars(), pl.read_parquet(theirs))
    extra = {
        "rows": rows,
        "seconds": {who: round(s, 3) for who, s in seconds.items()},
        "processor_seconds": {who: round(s, 3) for who, s in used.items()},
        "processor_ratio": round(used["polars"] / used["penstock"], 2),
    }
    peers = {"polars_by_hand": rows / seconds["polars"]}
    return Claim(f"etl/{name}", "rows/s", rows / seconds["penstock"], peers, extra=extra)


def check_same(ours: pl.DataFrame, theirs: pl.DataFrame) -> None:
    """A benchmark of two different jobs says nothing: the outputs must agree."""
    for name in theirs.columns:
        left, right = ours[name], theirs[name]
        if left.dtype.is_float():
            worst = (left.cast(pl.Float64) - right.cast(pl.Float64)).abs().max()
            assert isinstance(worst, float) and worst < 1e-3, f"column {name} differs by {worst}"
        else:
            assert left.equals(right.cast(left.dtype)), f"column {name} differs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows of each shape")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    claims = []
    for name in args.shapes:
        with tempfile.TemporaryDirectory() as place:
            claims.append(measured(name, args.scale, args.rounds, Path(place)))
    report("ETL: other shapes than Criteo's", claims)


if __name__ == "__main__":
    main()
