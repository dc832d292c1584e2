"""A Lightning data module around penstock loaders: ranks, resumption and devices follow the trainer."""

from __future__ import annotations

import copy
from typing import Any

from penstock.core.extras import require
from penstock.loader.torch import Loader

lightning = require("lightning", "lightning")


class DataModule(lightning.LightningDataModule):  # type: ignore[name-defined]
    """Loaders for `Trainer.fit`, `validate`, `test` and `predict`.

    Under several processes each loader delivers its rank's share, with as many batches on every rank. The position in
    the epoch is saved in Lightning's checkpoints and restored from them.

    Args:
        train: the loader of `fit`.
        valid: of `validate`, and of `fit` between epochs.
        test: of `test`.
        predict: of `predict`.

    >>> train = Loader({"user": [1, 2, 3], "click": [0, 1, 0]}, 2, categorical=["user"], labels=["click"])
    >>> len(DataModule(train).train_dataloader())
    2
    """

    def __init__(
        self,
        train: Loader | None = None,
        valid: Loader | None = None,
        test: Loader | None = None,
        predict: Loader | None = None,
    ) -> None:
        super().__init__()
        self._loaders = {"train": train, "val": valid, "test": test, "predict": predict}
        # Lightning asks which hooks are overridden; those without a loader must look as if they were not.
        for name, loader in self._loaders.items():
            if loader is not None:
                setattr(self, f"{name}_dataloader", lambda name=name: self._loader(name))

    def _loader(self, name: str) -> Loader:
        loader = self._loaders[name]
        assert loader is not None
        trainer = getattr(self, "trainer", None)
        if trainer is not None and trainer.world_size != loader.world:
            loader = copy.copy(loader)
            loader.rank, loader.world = trainer.global_rank, trainer.world_size
            loader._plans = {}
            self._loaders[name] = loader
        return loader

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        """Batches that are on the device already stay there.

        Args:
            batch: of a loader.
            device: that of the trainer.
            dataloader_idx: which loader it is from.

        Returns:
            The batch there.
        """
        return lightning.fabric.utilities.move_data_to_device(batch, device)
