"""Criteo click logs to features, step by step: python examples/criteo_etl.py [DAY.tsv]

Without a file it makes 200,000 rows that are shaped like Criteo's.
"""

import sys
import tempfile
from pathlib import Path

import penstock as ps
from penstock import ops
from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo


def main(source: str | None = None, num_rows: int = 200_000) -> None:
    place = Path(tempfile.mkdtemp(prefix="penstock-example-"))
    if source is None:
        made = criteo(place / "day.tsv", num_rows, cardinalities=50_000)
        print(made)
        source = str(made.path)

    # Headerless TSV: names and dtypes are ours to say. "hex32" reads the hashed ids as the integers they spell.
    data = ps.Dataset(source, names=CRITEO_NAMES, dtypes=CRITEO_DTYPES, on_error="skip").with_roles(label=["label"])
    train, valid = data.split([0.9, 0.1], seed=7)

    numbers = [f"I{i}" for i in range(1, 14)] >> ops.FillMissing() >> ops.Clip(min_value=0) >> ops.LogOp()
    categories = [f"C{i}" for i in range(1, 27)] >> ops.Categorify(freq_threshold=6)
    workflow = ps.Workflow(["label"] + categories + (numbers >> ops.Normalize()))

    # One pass learns everything; the rows held out are transformed with what the training rows taught.
    workflow.fit_transform(train).to_parquet(place / "train", shuffle="full", seed=7)
    workflow.transform(valid).to_parquet(place / "valid")
    workflow.save(place / "workflow")

    sizes = ops.get_embedding_sizes(workflow)
    print("embedding tables:", {name: sizes[name] for name in ("C1", "C2", "C3")}, "…")

    # Online: the saved workflow without the label, one row at a time.
    online = ps.Workflow.load(place / "workflow").remove_inputs(["label"])
    row = dict.fromkeys(CRITEO_NAMES[1:]) | {"I1": 3, "C1": "68fd1e64"}
    print("one row:", {name: value for name, value in online.transform_row(row).items() if name in ("I1", "C1", "C2")})

    print(ps.Dataset(place / "train"))
    print("written to", place)


if __name__ == "__main__":
    main(*sys.argv[1:2])
