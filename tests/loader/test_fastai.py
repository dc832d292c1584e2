import pytest
import torch

from penstock.core.errors import ParameterError
from penstock.loader.torch import Loader


@pytest.fixture(scope="module", autouse=True)
def fastai_loaded():
    """fastai is loaded by the process that runs this file, not by every process that collects it."""
    global Learner, load_learner, RocAucBinary, TabularModel, dataloaders
    pytest.importorskip("fastai")
    import fastai.callback.progress  # noqa: F401
    from fastai.basics import Learner, load_learner
    from fastai.metrics import RocAucBinary
    from fastai.tabular.model import TabularModel

    from penstock.loader.fastai import dataloaders


def loader(path, **options):
    names = {"categorical": ["user", "item"], "continuous": ["price", "age"], "labels": ["click"]}
    options = {"layout": "packed", "dtypes": {"label": "int64"}, **options}
    return Loader(path, 1000, **names, **options)


@pytest.fixture
def learner(path, tmp_path):
    dls = dataloaders(loader(path, shuffle=True), loader(path), device="cpu", path=tmp_path)
    model = TabularModel(emb_szs=[(100, 4), (40_000, 4)], n_cont=2, out_sz=2, layers=[8])
    return Learner(dls, model, loss_func=torch.nn.CrossEntropyLoss(), metrics=[RocAucBinary()], path=tmp_path)


@pytest.mark.filterwarnings("ignore:load_learner")
def test_fit_predict_export(learner, tmp_path, frame):
    with learner.no_bar(), learner.no_logging():
        learner.fit(1, 0.01)
        predictions, targets = learner.get_preds()
        assert predictions.shape == (5003, 2)
        assert targets.tolist() == frame["click"].to_list()  # in the file's order
        _, shuffled = learner.get_preds(ds_idx=0)
        assert len(shuffled) == 5003
        before = predictions[:5]
        learner.export("model.pkl")
        assert len(learner.dls.train) == 6  # exporting leaves the learner as it was
        loaded = load_learner(tmp_path / "model.pkl")
    batch = next(iter(loader(tmp_path_of(learner))))
    with torch.no_grad():
        again = loaded.model.eval()(batch[0][:5], batch[1][:5])
    torch.testing.assert_close(torch.softmax(again, 1), torch.softmax(before, 1), rtol=1e-4, atol=1e-4)
    with pytest.raises(ParameterError, match="exported without its data"):
        next(iter(loaded.dls.train))


def tmp_path_of(learner):
    return learner.dls.valid.loader.dataset


def test_devices(learner):
    assert learner.dls.device == torch.device("cpu")
    learner.dls.to("cpu")
    assert learner.dls.train.bs == 1000
    assert learner.dls.n_inp == 2
    cats, _, _ = learner.dls.one_batch()
    assert cats.device.type == "cpu"
    assert learner.dls.train.num_rows_processed == 0


def test_wants_packed_batches(path):
    with pytest.raises(ParameterError, match="layout='packed'"):
        dataloaders(loader(path, layout="dict", dtypes=None))
