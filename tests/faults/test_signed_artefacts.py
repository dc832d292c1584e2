"""Signed artefacts: what a key has signed loads with it, and whatever was done to it since is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.writers import _save_model, fitted, store, version_of, versions_of_store

from penstock import Workflow
from penstock.core.artefact import MANIFEST, checksum
from penstock.core.errors import ArtefactError, OutputExistsError, ParameterError
from penstock.core.signing import SIGNATURE, new_key, read_key, sign, verifying
from penstock.embedding import EmbeddingConfig, SlotConfig, Store
from penstock.embedding.feed import FeedWriter
from penstock.embedding.feed_reader import FeedReader
from penstock.serve import Predictor, load_model

OTHER = {"penstock": "signature", "version": 1, "algorithm": "hmac-sha256", "key": "0" * 16, "signature": "0" * 64}


def _publish(place: Path, version: int) -> None:
    writer = FeedWriter(store(version), place, whole_every=1)
    writer.publish()
    writer.close()


def _follow(place: Path, key: Any) -> set[int]:
    following = Store(EmbeddingConfig([SlotConfig("user", dim=2), SlotConfig("ad", dim=3)]), seed=0)
    reader = FeedReader(place, following, patience=0, verify=key)
    if not reader.poll():
        reader.poll()  # one that may still arrive is waited for once
    return versions_of_store(following)


def _models(place: Path, key: Any) -> set[int]:
    saved = load_model(place, verify=key)
    assert saved.fitted is not None
    return version_of(saved.fitted)


# How each kind is written, how it is read with a key, and where the manifest that is signed lies.
KINDS: dict[str, tuple[Callable[[Path, int], Any], Callable[[Path, Any], set[int]], str]] = {
    "workflow": (
        lambda place, version: fitted(version).save(place),
        lambda place, key: version_of(Workflow.load(place, verify=key)),
        ".",
    ),
    "store": (
        lambda place, version: store(version).save(place),
        lambda place, key: versions_of_store(Store.open(place, verify=key)),
        ".",
    ),
    "model": (_save_model, _models, "model"),
    "feed": (_publish, _follow, "packet-00000001"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of every kind, the first of them signed."""
    root = tmp_path_factory.mktemp("signed")
    key = new_key(root / "key")
    new_key(root / "other")
    for kind, (write, _, _) in KINDS.items():
        for version in (1, 2):
            write(root / f"{kind}-{version}", version)
        sign(root / f"{kind}-1", key)
    return root


@pytest.fixture(params=sorted(KINDS))
def copied(request: pytest.FixtureRequest, made: Path, tmp_path: Path) -> tuple[str, Path, Path]:
    """A kind, and copies of its signed and its other version."""
    for version in (1, 2):
        shutil.copytree(made / f"{request.param}-{version}", tmp_path / str(version))
    return request.param, tmp_path / "1", tmp_path / "2"


def _read(kind: str, place: Path, key: Path | None) -> set[int]:
    return KINDS[kind][1](place, key)


def test_what_was_signed_loads_with_its_key_and_without_one(copied: Any, made: Path) -> None:
    kind, signed, _ = copied
    assert _read(kind, signed, made / "key") == {1}
    assert _read(kind, signed, None) == {1}


def test_what_nobody_signed_is_refused(copied: Any, made: Path) -> None:
    kind, _, unsigned = copied
    with pytest.raises(ArtefactError, match=r"is not signed \(it has no signature.json\)"):
        _read(kind, unsigned, made / "key")


def test_another_key_is_refused(copied: Any, made: Path) -> None:
    kind, signed, _ = copied
    with pytest.raises(ArtefactError, match=f"{SIGNATURE} was made with key '{read_key(made / 'key').name}'"):
        _read(kind, signed, made / "other")


def test_a_file_that_was_altered_is_refused(copied: Any, made: Path) -> None:
    kind, signed, _ = copied
    target = next(path for path in sorted(signed.rglob("*.json")) if path.name not in (MANIFEST, SIGNATURE))
    target.write_bytes(target.read_bytes().replace(b"1", b"3", 1))
    with pytest.raises(ArtefactError, match="altered after it was saved"):
        _read(kind, signed, made / "key")


def test_a_manifest_that_lists_other_files_is_refused(copied: Any, made: Path) -> None:
    """The forger's way: exchange everything, list it anew, and leave the signature as it was."""
    kind, signed, forged = copied
    inner = KINDS[kind][2]
    shutil.copy(signed / inner / SIGNATURE, forged / inner / SIGNATURE)
    assert _read(kind, forged, None) == {2}  # it is whole, but for who made it
    with pytest.raises(ArtefactError, match="is not the one that was signed"):
        _read(kind, forged, made / "key")


def test_one_file_listed_anew_is_refused(copied: Any, made: Path) -> None:
    kind, signed, _ = copied
    folder = signed / KINDS[kind][2]
    manifest = json.loads((folder / MANIFEST).read_text())
    name = next(name for name in manifest["files"] if name.endswith(".json") and not name.endswith(MANIFEST))
    (folder / name).write_text((folder / name).read_text() + " ")
    manifest["files"][name] |= {"bytes": (folder / name).stat().st_size, "sha256": checksum(folder / name)}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))
    assert _read(kind, signed, None) == {1}
    with pytest.raises(ArtefactError, match="is not the one that was signed"):
        _read(kind, signed, made / "key")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{}", b"\xff", b"[" * 4000, b" " * 10_000, json.dumps({**OTHER, "signature": "é" * 64}).encode(),
        json.dumps({**OTHER, "signature": None}).encode(), json.dumps({**OTHER, "algorithm": "none"}).encode(),
        json.dumps({**OTHER, "version": 2}).encode(), json.dumps({**OTHER, "signature": ""}).encode(),
    ],
    ids=lambda content: content[:12].decode("latin1") + str(len(content)),
)  # fmt: skip
def test_a_malformed_signature_is_refused(content: bytes, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "workflow-1", tmp_path / "flow")
    (tmp_path / "flow" / SIGNATURE).write_bytes(content.replace(b"0" * 16, read_key(made / "key").name.encode(), 1))
    with pytest.raises(ArtefactError, match=SIGNATURE):
        Workflow.load(tmp_path / "flow", verify=made / "key")


def test_a_store_is_verified_with_the_model_that_names_it(made: Path, tmp_path: Path) -> None:
    """Only `model` needs the signature: it names its store by checksum. A store exchanged for another is refused."""
    place = shutil.copytree(made / "model-1", tmp_path / "model")
    held = next(place.glob("store-*"))
    (held / SIGNATURE).unlink()
    assert _models(place, made / "key") == {1}
    with pytest.raises(ArtefactError, match="is not signed"):
        Store.open(held, verify=made / "key")
    other = next((made / "model-2").glob("store-*"))
    shutil.rmtree(held)
    shutil.copytree(other, held)
    with pytest.raises(ArtefactError, match="does not hold the embeddings"):
        _models(place, made / "key")


def test_an_incremental_checkpoint_brings_its_base(made: Path, tmp_path: Path) -> None:
    first = store(1)
    first.save(tmp_path / "base")
    first.update(
        first.lookup({"user": np.arange(8), "ad": np.arange(8)}), {"user": np.zeros((8, 2)), "ad": np.zeros((8, 3))}
    )
    first.save(tmp_path / "next", base=tmp_path / "base")
    assert sign(tmp_path / "next", made / "key") == [tmp_path / "next"]
    assert versions_of_store(Store.open(tmp_path / "next", verify=made / "key")) == {1}
    with pytest.raises(ArtefactError, match="is not signed"):
        Store.open(tmp_path / "base", verify=made / "key")


def test_a_feed_signs_what_it_publishes_and_its_reader_leaves_out_the_rest(made: Path, tmp_path: Path) -> None:
    trained = store(1)
    writer = FeedWriter(trained, tmp_path, whole_every=1, sign=made / "key")
    writer.publish()
    following = Store(EmbeddingConfig([SlotConfig("user", dim=2), SlotConfig("ad", dim=3)]), seed=0)
    reader = FeedReader(tmp_path, following, patience=0, verify=made / "key")
    assert reader.poll() == 1
    shutil.copytree(made / "feed-2" / "packet-00000001", tmp_path / "packet-00000002")  # nobody signed it
    assert reader.poll() == 0
    with pytest.raises(ArtefactError, match="is not signed"):
        reader.poll()
    assert reader.problem is not None
    assert versions_of_store(following) == {1}
    writer._number = 2
    writer.publish()
    assert reader.poll() == 1
    assert reader.problem is None
    writer.close()


def test_a_predictor_follows_signed_packets_only(made: Path, tmp_path: Path) -> None:
    with Predictor(made / "model-1", feed=tmp_path, verify=made / "key") as predictor:
        assert predictor._feed is not None
        assert predictor._feed._key == read_key(made / "key")


def test_a_block_verifies_whatever_is_read_in_it(made: Path) -> None:
    with verifying(made / "key"):
        assert version_of(Workflow.load(made / "workflow-1")) == {1}
        with pytest.raises(ArtefactError, match="is not signed"):
            Workflow.load(made / "workflow-2")
    assert version_of(Workflow.load(made / "workflow-2")) == {2}


def test_signing_refuses_what_is_damaged_and_what_is_no_artefact(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "workflow-2", tmp_path / "flow")
    (tmp_path / "flow" / "workflow.json").write_text("{}")
    with pytest.raises(ArtefactError, match=r"workflow.json is truncated or altered"):
        sign(tmp_path, made / "key")
    assert not (tmp_path / "flow" / SIGNATURE).exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtefactError, match="holds nothing to sign"):
        sign(tmp_path / "empty", made / "key")
    (tmp_path / "empty" / "_schema.json").write_text("{}")
    with pytest.raises(ArtefactError, match="is a data set"):
        sign(tmp_path / "empty", made / "key")


def test_keys_are_private_files_of_one_form(tmp_path: Path) -> None:
    key = new_key(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert read_key(tmp_path / "key") == key
    assert key.secret.hex() not in repr(key)
    with pytest.raises(OutputExistsError, match="a key that is replaced is lost"):
        new_key(tmp_path / "key")
    assert read_key(tmp_path / "key") == key
    for content in (b"", b"secret", b"penstock hmac-sha256 " + b"0" * 63, b"\xff" * 100):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(ParameterError, match="holds no signing key"):
            read_key(tmp_path / "bad")
    with pytest.raises(ParameterError, match="cannot be read: No such file"):
        read_key(tmp_path / "none")
