"""The incremental feed: a directory of packets by which a serving process follows a training.

Packets are folders `packet-00000001`, `packet-00000002`, … Each holds the embeddings that changed since the one before,
and what was removed; the first of a writer holds everything. With them go the weights of the dense model, where the
writer was given one: they are few, and written whole. A packet is renamed into place when it is complete.
"""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core import artefact
from penstock.core.keys import KeyLike, read_key
from penstock.core.params import NONE, Int, check_all
from penstock.embedding.feed_packets import DENSE, KIND, VERSION, packet_numbers, packet_path
from penstock.embedding.feed_sources import source_of
from penstock.embedding.locks import WriteLock
from penstock.embedding.protocol import Embeddings

if TYPE_CHECKING:
    from torch import nn


class FeedWriter:
    """Publishes what changes in embeddings. `whole_every` packets everything is written anew, older ones are deleted.

    A store says itself what has changed: rows touched since the packet before. So do the shards of a `RayStore`, each
    of which writes its own part; where one has lost count, because it was restored or its standby took over, the next
    packet holds everything. Tables on a device are compared with what was published last, of which a copy is kept in
    host memory.

    Args:
        embeddings: whose changes are published: a store, or tables on a device; None where there are none.
        directory: where packets go; for a `RayStore`, one that all its machines reach.
        whole_every: packets after which one holds everything.
        sign: the file of a key; packets are signed with it, for readers that verify.
        model: the dense model, whose weights go along; tables on a device need it to know their columns.

    >>> import tempfile
    >>> from penstock.embedding import SGD, FeedReader, SlotConfig, Store
    >>> config = [SlotConfig("user", dim=4)]
    >>> store, serving = Store(config, SGD()), Store(config)
    >>> writer = FeedWriter(store, tempfile.mkdtemp())
    >>> reader = FeedReader(writer.directory, serving)
    >>> found = store.lookup({"user": [7]})
    >>> _ = writer.publish()
    >>> reader.poll(), bool((serving.lookup({"user": [7]}, train=False)["user"] == found["user"]).all())
    (1, True)
    >>> writer.close()
    """

    def __init__(
        self,
        embeddings: Embeddings | None,
        directory: str | Path,
        whole_every: int | None = None,
        sign: KeyLike | None = None,
        model: nn.Module | None = None,
    ) -> None:
        check_all({"whole_every": whole_every}, {"whole_every": NONE | Int(min=1)}, "FeedWriter")
        self.embeddings, self.model = embeddings, model
        self.directory, self.whole_every = Path(directory).absolute(), whole_every
        self._source = source_of(embeddings, model)
        self._key = None if sign is None else read_key(sign)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = WriteLock(self.directory / "packets")
        existing = packet_numbers(self.directory)
        self._number, self._since_whole = (existing[-1] if existing else 0), -1
        self._name = secrets.token_hex(8)  # tells its packets from those of another training

    def publish(self, step: int | None = None) -> Path:
        """Write the next packet; its path.

        Args:
            step: of the training, which readers are told.

        Returns:
            The path of the packet.
        """
        whole = self._since_whole < 0 or (self.whole_every is not None and self._since_whole + 1 >= self.whole_every)
        place = packet_path(self.directory, self._number + 1)
        with self._source.lock:
            with artefact.writing(place, KIND, VERSION, key=self._key) as folder:
                whole = self._source.write(folder, whole)
                self._write_dense(folder)
                about = {
                    "number": self._number + 1,
                    "writer": self._name,
                    "whole": whole,
                    "step": step,
                    "dense": self.model is not None,
                    **self._source.about(),
                }
                (folder / "packet.json").write_text(json.dumps(about))
            self._source.written()
        self._number += 1
        self._since_whole = 0 if whole else self._since_whole + 1
        if whole:
            for number in packet_numbers(self.directory):
                if number < self._number:
                    shutil.rmtree(packet_path(self.directory, number), ignore_errors=True)
        return place

    def _write_dense(self, folder: Path) -> None:
        if self.model is None:
            return
        from penstock.embedding.tensor_files import write_tensors

        weights: dict[str, Any] = {
            name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in self.model.state_dict().items()
        }
        write_tensors(weights, folder / DENSE)

    def close(self) -> None:
        """Let another writer in."""
        self._lock.close()
