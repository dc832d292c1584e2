"""Batches on their way to a device: the next epoch is read before the present one ends."""

import threading

import pytest

torch = pytest.importorskip("torch")

from penstock.loader.torch import Loader  # noqa: E402


class Staged(Loader):
    """The road to a GPU, run on the CPU."""

    @property
    def _staged(self):
        return True


def made(dataset, **settings) -> Staged:
    return Staged(dataset, 256, shuffle=True, chunk_rows=1000, num_threads=2, **settings)


def rows(loader) -> list[int]:
    return torch.cat([features["row"] for features, _ in loader]).tolist()


def reading() -> int:
    return sum("stager" in thread.name for thread in threading.enumerate())


def test_an_epoch_that_was_begun_early_has_the_same_batches(dataset):
    plain, early = made(dataset), made(dataset)
    early.expect_epochs(9)
    for number in range(3):
        early.set_epoch(number)
        plain.set_epoch(number)
        assert rows(early) == rows(plain)
        assert early._begun is not None and early._begun.is_of(early.plan(number + 1), 0, len(early))
    early.expect_epochs(0)
    assert early._begun is None and reading() == 0


def test_it_begins_while_batches_of_the_present_one_are_left(dataset):
    loader = made(dataset)
    loader.expect_epochs(9)
    batches, begun = iter(loader), []
    for _ in batches:
        begun.append(loader._begun is not None)
    assert not begun[0] and begun[-5]
    assert loader.state_dict()["epoch"] == 1
    loader.expect_epochs(0)


def test_another_epoch_than_the_one_that_was_begun(dataset):
    plain, early = made(dataset), made(dataset)
    early.expect_epochs(9)
    rows(early)
    early.set_epoch(7)
    plain.set_epoch(7)
    assert rows(early) == rows(plain)
    early.set_epoch(0)
    early.expect_epochs(0)
    state = early.state_dict()
    assert rows(early)[:256] == rows(made(dataset))[:256] and state["batch"] == 0
    assert reading() == 0


def test_a_loop_that_is_left_early_leaves_nothing(dataset):
    loader = made(dataset)
    loader.expect_epochs(9)
    batches = iter(loader)
    for _ in range(len(loader) - 1):
        next(batches)
    assert loader._begun is not None
    batches.close()
    loader.expect_epochs(0)
    assert reading() == 0


def test_bounded_memory_and_seeds_of_ones_own_wait_for_their_epoch(dataset):
    class Drawn(Staged):
        def _epoch_seed(self, epoch):
            return 5 + epoch

    bounded = made(dataset)
    bounded.device_memory = 10**9
    for loader in (bounded, Drawn(dataset, 256, shuffle=True, chunk_rows=1000)):
        loader.expect_epochs(9)
        rows(loader)
        assert loader._begun is None
    assert reading() == 0


def test_an_error_of_the_next_epoch_is_raised_there(dataset, monkeypatch):
    loader = made(dataset)
    loader.expect_epochs(9)
    first = rows(loader)
    assert loader._begun is not None
    loader._begun._stager._queue.get()  # its first chunk is staged already

    def broken() -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(loader._begun._stager, "next_chunk", broken)
    with pytest.raises(OSError, match="disk is gone"):
        rows(loader)
    loader.expect_epochs(0)
    assert sorted(first) == list(range(5003)) and reading() == 0


def test_training_reads_on_and_ends_clean(dataset):
    from penstock.train.loop import Loop

    asked, used = [], []

    class Told(Staged):
        def expect_epochs(self, count):
            asked.append(count)
            super().expect_epochs(count)

        def _source(self, runtime, plan, start, stop):
            used.append(self._begun is not None)
            return super()._source(runtime, plan, start, stop)

    class Steps:
        """An executor that takes batches and does nothing with them."""

        steps, position = 0, None

        def train_steps(self, loader):
            for features, _ in loader:
                self.steps += 1
                yield len(features["row"])

        def collect_figures(self):
            return {}

    loader = Told(dataset, 256, shuffle=True, chunk_rows=1000, num_threads=2)
    from penstock.core.progress import bar

    loop = Loop(Steps(), loader, None, None, 3, None, None, None, None, [])
    with bar("train", 1, show=False) as drawn:
        loop.all_epochs(drawn)
    assert asked == [3, 2, 1, 0] and used == [False, True, True] and loop.executor.steps == 3 * len(loader)
    assert reading() == 0
