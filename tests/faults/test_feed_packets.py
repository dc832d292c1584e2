"""Packets of a feed, damaged in every place: each is reported and left out, and the next good one is applied."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from penstock.core import artefact
from penstock.core.errors import ArtefactError
from penstock.embedding import SGD, FeedReader, FeedWriter, SlotConfig, Store
from penstock.embedding.feed_packets import FIELDS, KIND, VERSION, packet_numbers

CONFIG = [SlotConfig("c", 4)]
IDS = {"c": np.arange(40)}
SEED = 20261116


def step(store: Store, ids: list[int]) -> None:
    found = store.lookup({"c": np.asarray(ids)})
    store.update(found, np.ones(found.packed.shape, np.float32))


def values(store: Store) -> np.ndarray:
    return store.lookup(IDS, train=False)["c"]


@pytest.fixture
def feed(tmp_path):
    """A feed with a whole packet that was read, and one more that will be damaged."""
    store, serving = Store(CONFIG, SGD()), Store(CONFIG)
    writer = FeedWriter(store, tmp_path / "feed")
    reader = FeedReader(writer.directory, serving, patience=0.0)
    step(store, list(range(20)))
    writer.publish()
    assert reader.poll() == 1
    step(store, [1, 2, 3])
    yield store, serving, writer, reader, writer.publish()
    writer.close()


def read_on(reader: FeedReader) -> int:
    """Poll until nothing new comes, as a follower does."""
    count = 0
    for _ in range(4):
        try:
            count += reader.poll()
        except ArtefactError:
            continue
    return count


def resealed(packet: Path) -> None:
    """Make the manifest fit whatever the files hold now: damage that no checksum shows."""
    (packet / artefact.MANIFEST).unlink(missing_ok=True)
    files = {
        path.relative_to(packet).as_posix(): {"bytes": path.stat().st_size, "sha256": artefact.checksum(path)}
        for path in sorted(packet.rglob("*"))
        if path.is_file()
    }
    manifest = {"penstock": KIND, "version": VERSION, "files": files}
    (packet / artefact.MANIFEST).write_text(json.dumps(manifest))


def without(file: str, *keys: str):
    def damage(packet: Path) -> None:
        path = packet / file
        content = json.loads(path.read_text())
        inner = content
        for key in keys[:-1]:
            inner = inner[key]
        del inner[keys[-1]]
        path.write_text(json.dumps(content))
        if file != artefact.MANIFEST:
            resealed(packet)

    return damage


def holding(file: str, content: str | bytes, seal: bool = True):
    def damage(packet: Path) -> None:
        (packet / file).write_bytes(content if isinstance(content, bytes) else content.encode())
        if seal:
            resealed(packet)

    return damage


def with_value(key: str, value: object):
    def damage(packet: Path) -> None:
        about = json.loads((packet / "packet.json").read_text())
        (packet / "packet.json").write_text(json.dumps({**about, key: value}))
        resealed(packet)

    return damage


DAMAGES = {
    **{f"manifest lacks {key}": without("manifest.json", key) for key in ("penstock", "version", "files")},
    "an entry lacks its size": without("manifest.json", "files", "packet.json", "bytes"),
    "an entry lacks its checksum": without("manifest.json", "files", "packet.json", "sha256"),
    **{f"packet lacks {key}": without("packet.json", key) for key in FIELDS},
    **{f"manifest is {text[:9]!r}": holding("manifest.json", text, False) for text in ("", "{}", "[]", "[" * 100_000)},
    **{f"packet is {text[:9]!r}": holding("packet.json", text) for text in ("", "{}", "null", "[" * 100_000, "\x00")},
    **{f"clock is {value!r}": with_value("clock", value) for value in ("x", -1, 2**80, None, True)},
    "another number": with_value("number", 9),
    "whole is text": with_value("whole", "no"),
    "another precision": with_value("storage", "float16"),
    "rows are no parquet": holding("rows/00000.parquet", b"PAR1" + b"\xff" * 100),
    "rows are empty": holding("rows/00000.parquet", b""),
    "no rows": lambda packet: shutil.rmtree(packet / "rows"),
    "no rows and no word of it": lambda packet: (shutil.rmtree(packet / "rows"), resealed(packet)),
    "no manifest": lambda packet: (packet / "manifest.json").unlink(),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_packet_is_left_out_and_the_next_good_one_is_applied(feed, damage) -> None:
    store, serving, writer, reader, packet = feed
    damage(packet)
    step(store, [7, 8])
    writer.publish()
    assert read_on(reader) == 1 and reader.applied == 3
    assert packet.name in reader.problem and "was left out" in reader.problem
    np.testing.assert_array_equal(values(serving)[[7, 8]], values(store)[[7, 8]])
    writer.close()
    again = FeedWriter(store, writer.directory)  # a writer that begins anew publishes everything
    again.publish()
    again.close()
    assert read_on(reader) == 1 and reader.problem is None
    np.testing.assert_array_equal(values(serving), values(store))


def test_a_packet_that_is_copied_again_is_applied(feed, tmp_path) -> None:
    store, serving, _, reader, packet = feed
    shutil.copytree(packet, tmp_path / "good")
    (packet / "packet.json").write_text("{}")
    assert read_on(reader) == 0 and packet.name in reader.problem
    shutil.rmtree(packet)
    shutil.copytree(tmp_path / "good", packet)
    assert read_on(reader) == 1
    np.testing.assert_array_equal(values(serving), values(store))


def test_the_error_is_raised_once_and_stays_to_be_read(feed) -> None:
    *_, reader, packet = feed
    (packet / "manifest.json").write_text("{}")
    with pytest.raises(ArtefactError, match=rf"{packet.name}/manifest\.json is not a readable manifest: .* lacks"):
        reader.poll()
    assert reader.poll() == 0 and packet.name in reader.problem


def test_other_names_are_no_packets(tmp_path) -> None:
    for name in (
        "packet-00000003",
        "packet-²",
        "packet-1",
        "packet-",
        "packet--0000001",
        "packet-0000000x",
        "packet-" + "9" * 60,
    ):
        (tmp_path / name).mkdir()
    assert packet_numbers(tmp_path) == [3]


def _mutated(feed, rng: random.Random) -> None:
    """Change bytes of one file, with or without a manifest that hides it; a good packet must still come through."""
    store, serving, writer, reader, packet = feed
    file = rng.choice([path for path in sorted(packet.rglob("*")) if path.is_file()])
    data = bytearray(file.read_bytes())
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data))
        if rng.random() < 0.7:
            data[at] = rng.randrange(256)
        else:
            del data[at : at + rng.randint(1, 50)]
    file.write_bytes(bytes(data))
    if rng.random() < 0.8 and file.name != artefact.MANIFEST:
        resealed(packet)
    step(store, [7, 8])
    writer.publish()
    read_on(reader)
    assert reader.applied == 3
    np.testing.assert_array_equal(values(serving)[[7, 8]], values(store)[[7, 8]])


def _fuzz(place: Path, tries: int) -> None:
    print(f"seed {SEED}, {tries} tries")
    for number in range(tries):
        store, serving = Store(CONFIG, SGD()), Store(CONFIG)
        writer = FeedWriter(store, place / str(number))
        reader = FeedReader(writer.directory, serving, patience=0.0)
        step(store, list(range(20)))
        writer.publish()
        reader.poll()
        step(store, [1, 2, 3])
        try:
            _mutated((store, serving, writer, reader, writer.publish()), random.Random(SEED + number))
        except BaseException:
            print(f"try {number}")
            raise
        finally:
            writer.close()
            store.close()
            serving.close()
            shutil.rmtree(writer.directory)


def test_random_damage(tmp_path) -> None:
    _fuzz(tmp_path, 30)


@pytest.mark.slow
def test_random_damage_at_length(tmp_path) -> None:
    _fuzz(tmp_path, 2_000)


def test_a_packet_of_another_training_is_left_out(feed, tmp_path) -> None:
    """Both packets are whole and fit the store; together they would be rows of two trainings."""
    store, serving, writer, reader, packet = feed
    other = Store(CONFIG, SGD())
    foreign = FeedWriter(other, tmp_path / "other")
    for ids in ([5, 6], [1, 7]):
        step(other, ids)
        copied = foreign.publish()
    foreign.close()
    before = values(serving).copy()
    shutil.rmtree(packet)
    shutil.copytree(copied, packet)
    assert read_on(reader) == 0 and "is of another feed than packet 1" in str(reader.problem)
    assert np.array_equal(values(serving), before)
    writer.whole_every = 1  # everything anew makes up for it
    writer.publish()
    assert read_on(reader) == 1 and reader.problem is None
    assert np.array_equal(values(serving), values(store))


def test_a_folder_that_is_gone_is_said_and_read_on_when_it_is_back(feed, tmp_path) -> None:
    _, serving, writer, reader, _ = feed
    away = tmp_path / "away"
    for stand_in in (None, b"a file"):
        writer.directory.rename(away)
        if stand_in is not None:
            writer.directory.write_bytes(stand_in)
        assert read_on(reader) == 0
        assert str(writer.directory) in reader.problem and "once it can be" in reader.problem
        writer.directory.unlink(missing_ok=True)
        away.rename(writer.directory)
    assert read_on(reader) == 1 and reader.problem is None
    assert values(serving).any()
