"""From a file of one's own to a served model: each in two commands, none of which fails."""

from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from penstock.core.yaml_files import parse_yaml
from penstock.data.synthetic import criteo
from penstock.serve import Predictor

from .conftest import asked, call, fails, ok

SMALL = ("--epochs", 1, "--batch-size", 256, "--embedding-dim", 4)
ROWS = 1200


def avazu(path: Path) -> None:
    draw = np.random.default_rng(0)
    hashed = ["site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category", "device_id"]
    columns = {
        "id": [str(v) for v in draw.integers(10**18, 2**64 - 1, ROWS, dtype=np.uint64)],
        "click": draw.integers(0, 2, ROWS),
        "hour": 14102100 + draw.integers(0, 24, ROWS) + 100 * draw.integers(0, 10, ROWS),
        "C1": draw.choice([1002, 1005, 1010], ROWS),
        "banner_pos": draw.integers(0, 8, ROWS),
        **{name: [f"{v:08x}" for v in draw.integers(0, 2**32, 40)[draw.integers(0, 40, ROWS)]] for name in hashed},
        "device_ip": [f"{v:08x}" for v in draw.integers(0, 2**32, ROWS)],
        "device_model": [f"{v:08x}" for v in draw.integers(0, 2**32, 90)[draw.integers(0, 90, ROWS)]],
        "device_type": draw.integers(0, 5, ROWS),
        "device_conn_type": draw.integers(0, 6, ROWS),
        **{f"C{i}": draw.integers(0, 50, ROWS) for i in range(14, 22)},
    }
    pl.DataFrame(columns).write_csv(path)


def ratings(path: Path) -> None:
    draw = np.random.default_rng(1)
    bounds = ((1, 80), (1, 120), (1, 6), (874724710, 893286638))
    between = "::" if path.suffix == ".dat" else "\t"
    lines = [between.join(str(draw.integers(*bound)) for bound in bounds) for _ in range(ROWS)]
    path.write_text("\n".join(lines) + "\n")


def deepctr(path: Path) -> None:
    """As DeepCTR's MovieLens sample: ids, a zip code, lists in text, a title, a rating."""
    draw = np.random.default_rng(2)
    genres = ["Comedy", "Drama", "War", "Action", "Children's"]
    lines = ["user_id,movie_id,rating,timestamp,title,genres,gender,age,occupation,zip"]
    for _ in range(ROWS):
        movie = int(draw.integers(1, 150))
        own = "|".join(sorted({genres[movie % 5], genres[movie % 3]}))
        lines.append(
            f"{draw.integers(1, 90)},{movie},{draw.integers(1, 6)},{draw.integers(956703932, 1046454590)},"
            f'"Film {movie}, The ({1950 + movie % 50})",{own},{draw.choice(["M", "F"])},'
            f"{draw.choice([1, 18, 25, 35])},{draw.integers(0, 21)},{draw.integers(0, 300):05d}"
        )
    path.write_text("\n".join(lines) + "\n")


def real_criteo(path: Path) -> None:
    criteo(path, ROWS, cardinalities=60, progress=False)


def odd(path: Path) -> None:
    """Semicolons, cp1252, quotes, words for nothing, dates, lists, constants, a leak, text labels, no value twice."""
    draw = np.random.default_rng(3)
    lines = ["Id;Größe;Stadt;Tags;Wann;Preis;leer;Land;Ergebnis;Notiz;gekauft"]
    day = datetime.datetime(2024, 3, 1)
    for i in range(ROWS):
        bought = bool(draw.random() < 0.3)
        tags = ",".join(sorted(draw.choice(["rot", "grün", "blau", "weiß"], 2, replace=False)))
        when = (day + datetime.timedelta(minutes=int(draw.integers(0, 90000)))).strftime("%Y-%m-%d %H:%M:%S")
        lines.append(
            f"{10**19 + i * 7919};{draw.choice(['NA', '1.5', '2.75', '30'])};{draw.choice(['Köln', 'Łódź', 'Roma'])};"
            f'"{tags}";{when};{draw.integers(0, 5000)};;DE;{"A" if bought else "B"};'
            f'"ein ""Text"" Nr. {i}; mit; Semikolon";{"ja" if bought else "nein"}'
        )
    path.write_bytes("\n".join(lines).replace("Łódź", "Nîmes").encode("cp1252"))


def odd_types(path: Path) -> None:
    """Parquet with decimals, spans, times of the day, structs, maps and lists of lists."""
    draw = np.random.default_rng(4)
    clicks = draw.integers(0, 2, ROWS)
    frame = pl.DataFrame(
        {
            "user": draw.integers(0, 50, ROWS),
            "price": pl.Series([f"{v:.2f}" for v in draw.lognormal(2, 1, ROWS)]).cast(pl.Decimal(scale=2)),
            "span": pl.Series(draw.integers(0, 10**9, ROWS)).cast(pl.Duration("us")),
            "at": [datetime.time(int(hour), 30) for hour in draw.integers(0, 24, ROWS)],
            "where": [{"town": "Roma", "zip": int(v)} for v in draw.integers(0, 99, ROWS)],
            "nested": [[[int(v)], []] for v in draw.integers(0, 9, ROWS)],
            "click": clicks,
        }
    )
    frame.write_parquet(path)


def reviews(path: Path) -> None:
    """As Amazon's: JSON lines, packed, objects in some of them."""
    draw = np.random.default_rng(5)
    lines = []
    for i in range(ROWS):
        row = {"reviewerID": f"A{draw.integers(0, 50)}X", "asin": f"B00{draw.integers(0, 60)}", "helpful": [1, 2],
               "overall": float(draw.integers(1, 6)), "unixReviewTime": int(draw.integers(1.2e9, 1.4e9)),
               "reviewText": f"text {i}"}  # fmt: skip
        lines.append(json.dumps({**row, **({"style": {"Color:": "Red"}} if i % 7 == 0 else {})}))
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


def nameless(path: Path) -> None:
    """As KDD Cup 2012's: no names, clicks first, ids of any size."""
    draw = np.random.default_rng(6)
    ids = [draw.integers(0, 10**7, 40)[draw.integers(0, 40, ROWS)] for _ in range(5)]
    pl.DataFrame([draw.integers(0, 2, ROWS), *ids]).write_csv(path, separator="\t", include_header=False)


JOBS = {
    "avazu": (avazu, "train.csv", ("--label", "click")),
    "avazu-preset": (avazu, "train.gz.csv", ("--preset", "avazu")),
    "movielens": (ratings, "u.data", ("--preset", "movielens")),
    "movielens-colons": (ratings, "ratings.dat", ("--preset", "movielens")),
    "movielens-colons-told": (ratings, "ratings.dat", ("--label", "rating")),
    "movielens-told": (ratings, "u.data", ("--label", "rating")),
    "deepctr": (deepctr, "movielens_sample.txt", ("--label", "rating")),
    "criteo": (real_criteo, "train.txt", ("--label", "label")),
    "odd": (odd, "odd.txt", ("--label", "gekauft")),
    "odd-types": (odd_types, "rows.parquet", ()),
    "reviews": (reviews, "reviews.json.gz", ()),
    "nameless": (nameless, "training.txt", ()),
    "avazu-alone": (avazu, "train.csv", ()),
    "movielens-alone": (ratings, "u.data", ()),
    "criteo-alone": (real_criteo, "train.txt", ()),
    "deepctr-alone": (deepctr, "movielens_sample.txt", ()),
}


@pytest.mark.parametrize("job", JOBS)
def test_from_a_file_to_a_model_that_serves(job, tmp_path):
    make, name, options = JOBS[job]
    make(tmp_path / name)
    run = tmp_path / "run"
    ok("train", tmp_path / name, "-o", run, *options, *SMALL)
    assert (run / "recipe.yaml").exists() == ("--preset" not in options)
    with Predictor(run / "model") as predictor:
        row = dict.fromkeys(predictor.workflow.input_schema.names)
        assert 0 < predictor.predict_row(row) < 1
        example = predictor.saved.card.example
        assert asked(run / "model", {"rows": [example, row]})[1] == pytest.approx(predictor.predict_row(row), abs=1e-6)
    ok("evaluate", run, tmp_path / name)
    ok("predict", run, tmp_path / name, "-o", tmp_path / "scores.csv")
    assert pl.read_csv(tmp_path / "scores.csv").height == ROWS


def test_a_model_without_an_example(tmp_path):
    ratings(tmp_path / "u.data")
    ok("train", tmp_path / "u.data", "-o", tmp_path / "run", "--preset", "movielens", "--no-keep-example", *SMALL)
    with Predictor(tmp_path / "run" / "model") as predictor:
        card = predictor.saved.card
    assert card.example is None and card.rows == ROWS * 0.9


def drafted(path: Path, *options: object) -> dict:
    return parse_yaml(ok("init", path, *options), "draft")


def test_init_says_what_each_column_is(tmp_path):
    deepctr(tmp_path / "movies.txt")
    text = ok("init", tmp_path / "movies.txt", "--label", "rating")
    recipe = parse_yaml(text, "draft")
    nodes = recipe["nodes"]
    assert nodes["label"] == {"columns": ["rating"], "ops": [{"Binarize": {"threshold": 4}}]}
    assert nodes["lists"]["columns"] == ["genres"]
    assert nodes["times"]["columns"] == ["timestamp"]
    assert {"user_id", "movie_id", "gender", "occupation"} <= set(nodes["categories"]["columns"])
    assert recipe["input"]["dtypes"]["string"][-1] == "zip"
    for node in nodes.values():  # a comment on each column's line
        for column in node["columns"]:
            line = next(
                line for line in text.splitlines() if line.strip().startswith(("- ", "columns:")) and column in line
            )
            assert "#" in line


def test_init_leaves_out_what_does_not_help_and_says_why(tmp_path):
    odd(tmp_path / "odd.txt")
    text = ok("init", tmp_path / "odd.txt", "--label", "gekauft")
    gone = text.partition("# Left out")[2]
    for name, why in {
        "Id": "a different",
        "leer": "no value",
        "Land": "the same everywhere",
        "Ergebnis": "gives the label away",
        "Notiz": "a different value",
    }.items():
        assert f"#   {name}: {why}" in gone
    recipe = parse_yaml(text, "draft")
    assert recipe["nodes"]["label"]["ops"] == [{"Binarize": {"ones": ["ja"]}}]
    assert recipe["nodes"]["lists"]["ops"][0] == {"Split": {"separator": ","}}
    assert (recipe["input"]["separator"], recipe["input"]["encoding"]) == (";", "cp1252")


def test_init_writes_a_recipe_that_trains(tmp_path):
    avazu(tmp_path / "a.csv")
    said = call("init", tmp_path / "a.csv", "-o", tmp_path / "recipe.yaml")
    assert said.exit_code == 0
    assert "separator ','" in said.stderr
    assert "--overwrite" in fails(1, "init", tmp_path / "a.csv", "-o", tmp_path / "recipe.yaml")
    place = tmp_path / "a.csv" / "recipe.yaml"  # a file is no folder
    assert f"{place} cannot be written" in call("init", tmp_path / "a.csv", "-o", place).stderr
    ok("train", tmp_path / "a.csv", "--recipe", tmp_path / "recipe.yaml", "-o", tmp_path / "run", *SMALL)


def test_init_knows_the_presets(tmp_path):
    for make, name, preset in (
        (avazu, "a.csv", "avazu"),
        (real_criteo, "c.txt", "criteo"),
        (ratings, "u.data", "movielens"),
    ):
        make(tmp_path / name)
        assert f"--preset {preset}" in ok("init", tmp_path / name)


def test_init_asks_for_the_label(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n3,4\n5,6\n" * 10)
    assert "Say --label COLUMN" in fails(1, "init", tmp_path / "a.csv")
    assert "did you mean" in fails(1, "init", tmp_path / "a.csv", "--label", "bb")
    (tmp_path / "b.csv").write_text("a,price\n" + "".join(f"{i},{i}.5\n" for i in range(50)))
    assert "regression" in fails(1, "init", tmp_path / "b.csv", "--label", "price")


def test_train_asks_for_the_label_that_it_cannot_tell(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n3,4\n5,6\n" * 10)
    said = fails(1, "train", tmp_path / "a.csv", "-o", tmp_path / "run")
    assert "which column is the label? Say --label COLUMN" in said and not (tmp_path / "run").exists()


def test_no_recipe_is_drafted_for_an_output_that_cannot_be_written(tmp_path):
    (tmp_path / "a.csv").write_text("user,click\n" + "1,0\n2,1\n" * 20)
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "foreign" / "model").mkdir(parents=True)
    for output, words in (("taken", "is a file"), ("taken/run", "is a file"), ("foreign", "is in the way")):
        said = fails(1, "train", tmp_path / "a.csv", "--label", "click", "--output", tmp_path / output)
        assert words in said and "recipe drafted" not in said


def test_a_recipe_is_said_to_be_drafted_only_where_it_is_written(tmp_path):
    (tmp_path / "a.csv").write_text("user,click\n" + "1,0\n1,1\n2,1\n2,0\n" * 10)
    train = ("train", tmp_path / "a.csv", "-o", tmp_path / "run", "--model", "MLP", "--epochs", "1")
    for words, wrong in (("no.csv", ("--test", tmp_path / "no.csv")), ("nowhere", ("--cluster", "nowhere://x"))):
        said = fails(1, *train, *wrong)
        assert words in said and "recipe drafted" not in said
        assert not (tmp_path / "run" / "recipe.yaml").exists()
    assert "recipe drafted: " in call(*train).output and (tmp_path / "run" / "recipe.yaml").exists()


def test_init_needs_rows(tmp_path):
    (tmp_path / "a.csv").write_text("user,click\n")
    assert "a.csv has no rows" in fails(1, "init", tmp_path / "a.csv", "--label", "click")


# Holding out, testing.


def timed(path: Path, rows: int = 600) -> None:
    draw = np.random.default_rng(5)
    users = draw.integers(0, 60, rows)
    frame = pl.DataFrame(
        {"user": users, "shop": draw.integers(0, 9, rows), "t": np.arange(rows), "click": draw.integers(0, 2, rows)}
    )
    frame.write_csv(path)


def held_out(run: Path) -> pl.DataFrame:
    return pl.read_parquet(run / "valid" / "*.parquet")


RECIPE = """
recipe: 1
input: {roles: {label: [click]}}
nodes:
  ids: {columns: [user, shop], ops: [Categorify]}
  raw: {columns: [user, t], ops: [{Rename: {postfix: _raw}}]}
  label: {columns: [click]}
"""


def test_valid_by_time_group_and_file(tmp_path):
    timed(tmp_path / "a.csv")
    timed(tmp_path / "b.csv", 100)
    (tmp_path / "r.yaml").write_text(RECIPE)
    common = ("train", tmp_path / "a.csv", "--recipe", tmp_path / "r.yaml", *SMALL)
    ok(*common, "-o", tmp_path / "time", "--valid-by", "time:t", "--test", tmp_path / "b.csv")
    assert held_out(tmp_path / "time")["t_raw"].sort().to_list() == list(range(540, 600))
    ok(*common, "-o", tmp_path / "group", "--valid-by", "group:user")
    train = pl.read_parquet(tmp_path / "group" / "features" / "*.parquet")["user_raw"]
    assert not set(train) & set(held_out(tmp_path / "group")["user_raw"])
    ok(*common, "-o", tmp_path / "file", "--valid-by", tmp_path / "b.csv")
    assert held_out(tmp_path / "file").height == 100


def test_valid_by_what_is_not_there(tmp_path):
    timed(tmp_path / "a.csv")
    (tmp_path / "r.yaml").write_text(RECIPE)
    common = (
        "train",
        tmp_path / "a.csv",
        "--recipe",
        tmp_path / "r.yaml",
        *SMALL,
        "-o",
        tmp_path / "run",
        "--valid-by",
    )
    assert "did you mean 'user'" in fails(1, *common, "group:usr")
    assert "time:COLUMN, group:COLUMN or a file" in fails(1, *common, "tme:t")
    assert not (tmp_path / "run").exists()


def test_rows_to_test_on(tmp_path):
    timed(tmp_path / "a.csv")
    timed(tmp_path / "b.csv", 100)
    common = ("train", tmp_path / "a.csv", "--label", "click", *SMALL)
    said = ok(*common, "-o", tmp_path / "run", "--test", tmp_path / "b.csv")
    assert "test: " in said and "on 100 rows" in said
    (tmp_path / "c.csv").write_text("user,click\n1,0\n")
    wrong = (
        "train",
        tmp_path / "a.csv",
        "--label",
        "click",
        "-o",
        tmp_path / "run2",
        "--test",
        tmp_path / "c.csv",
        *SMALL,
    )
    assert "'shop'" in call(*wrong).stderr
    assert not (tmp_path / "run2").exists()
