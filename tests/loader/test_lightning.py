import pytest
import torch

from penstock.loader.torch import Loader

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module", autouse=True)
def lightning_loaded():
    """Lightning is loaded by the process that runs this file, not by every process that collects it."""
    global lightning, DataModule, Model
    lightning = pytest.importorskip("lightning")
    from penstock.loader.lightning import DataModule

    class Model(lightning.LightningModule):
        def __init__(self, stop_after=None):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)
            self.seen, self.validated, self.stop_after = [], 0, stop_after

        def training_step(self, batch, index):
            cats, conts, labels = batch
            self.seen.append(cats[:, 0].tolist())
            if len(self.seen) == self.stop_after:
                self.trainer.save_checkpoint(self.checkpoint)
                self.trainer.should_stop = True
                self.trainer.fit_loop.epoch_loop.max_steps = self.trainer.global_step + 1
            return torch.nn.functional.mse_loss(self.layer(conts)[:, 0], labels)

        def validation_step(self, batch, index):
            self.validated += len(batch[2])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)


def loader(path, **options):
    names = {"categorical": ["row"], "continuous": ["price", "age"], "labels": ["click"]}
    return Loader(path, 500, layout="packed", chunk_rows=1000, **names, **options)


def test_fit_and_validate(path, tmp_path):
    model = Model()
    module = DataModule(loader(path, shuffle=True), loader(path))
    lightning.Trainer(max_epochs=2, default_root_dir=tmp_path, num_sanity_val_steps=1, **QUIET).fit(
        model, datamodule=module
    )
    assert len(model.seen) == 22
    for epoch in (model.seen[:11], model.seen[11:]):
        assert sorted(row for batch in epoch for row in batch) == list(range(5003))
    assert model.seen[0] != model.seen[11]
    assert model.validated == 2 * 5003 + 500


def test_resumes_in_the_middle_of_an_epoch(path, tmp_path):
    whole = Model()
    lightning.Trainer(max_epochs=1, enable_checkpointing=False, default_root_dir=tmp_path, **QUIET).fit(
        whole, datamodule=DataModule(loader(path, shuffle=True))
    )
    first = Model(stop_after=4)
    first.checkpoint = tmp_path / "half.ckpt"
    lightning.Trainer(max_steps=4, default_root_dir=tmp_path, **QUIET).fit(
        first, datamodule=DataModule(loader(path, shuffle=True))
    )
    second = Model()
    lightning.Trainer(max_epochs=1, enable_checkpointing=False, default_root_dir=tmp_path, **QUIET).fit(
        second, datamodule=DataModule(loader(path, shuffle=True)), ckpt_path=first.checkpoint
    )
    assert first.seen + second.seen == whole.seen
