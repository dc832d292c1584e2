"""One word for one thing: names that others see keep to the glossary in docs/architecture.md."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from penstock.jobs.settings import command_line_options

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "penstock"
# Classes of one name in several files, and why.
TWICE = {"Loader": "one a framework", "Workspace": "the buffers that a thread reads with, or writes with"}
# Words that say what is done only to who knows it: `all_gather` is plain, `gathered` is not.
CLEVER = {"everywhere", "gathered", "heard", "slots_of", "summed", "take", "tell", "trained"}
# Words of the glossary's last column that mean something else in these names, and what.
ELSEWHERE = {
    "backend": {},
    "buffer": {},
    "config": {
        "config": "a store's `EmbeddingConfig`; the `config.yaml` of a run; what a model is built from again",
        "EmbeddingConfig": "PERSIA's users know it",
        "SlotConfig": "PERSIA's users know it",
        "from_config": "a model from its `config()`",
        "get_config": "Keras' own",
    },
    "dense": {
        "DenseFeatures": "Keras' own",
        "dense_optimizer": "of the dense part of a model",
        "take_dense": "weights of the dense part of a model",
    },
    "dev": {},
    "experiment": {},
    "expiry": {},
    "feature": {
        "FeatureColumn": "Keras' own",
        "feature_columns": "Keras' own",
    },
    "fetch": {"fetch": "a checkpoint from where it was copied to"},
    "filter": {"filter": "of rows", "Filter": "of rows"},
    "gather": {},
    "hash": {"HashStack": "several hashes of an id", "hash_stack": "the same", "HashBucket": "ids by their hash"},
    "index": {"start_index": "NVTabular's own"},
    "message": {},
    "nthreads": {},
    "numbers": {},
    "numeric": {},
    "options": {"storage_options": "fsspec's own", "options": "of a plain loader"},
    "pull": {},
    "push": {},
    "server": {},
    "snapshot": {},
    "sparse": {"sparse": "torch's own, of gradients"},
    "target": {
        "TargetEncoding": "whose name that is",
        "target": "of target encoding",
        "target_mean": "of target encoding",
    },
    "validation": {},
    "verbose": {},
    "workers": {},
}
# Words that are common ones too: no name is told by them alone.
COMMON = {"kind", "part", "partition", "record", "sample", "size", "split", "store", "threads", "type", "width"}


@pytest.fixture(scope="module")
def names(public_names: ModuleType) -> set[str]:
    """Public functions, classes and their arguments, and what `penstock train` takes."""
    found = {name for one in public_names.public() for name, _ in one.parameters}
    return found | {one.name.rpartition(".")[2] for one in public_names.public()} | set(command_line_options())


def refused() -> set[str]:
    """The single words of the glossary's last column."""
    table = (ROOT / "docs" / "architecture.md").read_text().partition("## Glossary")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| \*\*.+?\*\* \| .+ \| (.*) \|$", table, re.M)
    words = (word.strip() for cell in cells for word in re.split(r"[;,]", re.sub(r"\(.*?\)", "", cell)))
    return {word for word in words if re.fullmatch(r"[a-z]+", word)}


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


def test_every_word_that_is_not_used_is_looked_for() -> None:
    assert refused() == {*ELSEWHERE, *COMMON}, "name the word in ELSEWHERE, or in COMMON if it says too little"


def test_names_keep_to_the_glossary(names: set[str]) -> None:
    wrong = {name: word for name in names for word in words_of(name) & ELSEWHERE.keys() if name not in ELSEWHERE[word]}
    assert not wrong, f"the glossary has other words for these, or they mean something else (ELSEWHERE): {wrong}"


def test_exceptions_are_still_there(names: set[str]) -> None:
    gone = {name for meanings in ELSEWHERE.values() for name in meanings} - names
    assert not gone, f"ELSEWHERE names what is gone: {gone}"


def test_numbers_of_things_begin_with_num(names: set[str]) -> None:
    assert not {name for name in names if re.match(r"n_|nr_|number_of_|emb_|embed_dim|val_", name)}


@cache
def definitions() -> dict[str, list[str]]:
    """Classes and functions of modules by name, with the files that they are in; old names are `compat`'s affair."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if "compat" not in path.relative_to(SOURCE).parts:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef):
                    found.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    return found


def test_a_class_has_one_meaning() -> None:
    public = {name: files for name, files in definitions().items() if name[0].isupper() and len(files) > 1}
    assert public.keys() <= TWICE.keys(), f"one name for several classes: {public}"
    assert public.keys() == TWICE.keys(), "TWICE names what is there once"


def test_plain_names_before_clever_ones() -> None:
    assert not {name: files for name, files in definitions().items() if name.strip("_") in CLEVER}


@pytest.mark.parametrize(
    ("name", "words"), [("show_progress", {"show", "progress"}), ("AUC", {"auc"}), ("HashBucket", {"hash", "bucket"})]
)
def test_names_are_told_apart_into_words(name: str, words: set[str]) -> None:
    assert words_of(name) == words
