"""Requests as Keras makes them, without Keras."""

from penstock.loader.keras_passes import Passes


class Source:
    """Epochs of numbered batches; `opened` and `closed` count the passes."""

    def __init__(self, length):
        self.length, self.epoch, self.opened, self.closed = length, 0, 0, 0

    def open(self):
        self.opened += 1
        return self._batches(), self.length

    def _batches(self):
        try:
            epoch = self.epoch
            for i in range(self.length):
                if i == self.length - 1:
                    self.epoch += 1
                yield epoch, i
        finally:
            self.closed += 1


def a_pass(passes, count):
    passes.begin()
    return [passes.next_batch() for _ in range(count)]


def epoch(number, length):
    return [(number, i) for i in range(length)]


def test_looking_costs_no_batch():
    for length in (1, 2, 3, 7):
        source = Source(length)
        passes = Passes(source.open)
        looked = a_pass(passes, min(2, length))
        assert looked == epoch(0, length)[:2]
        passes.begin()  # fit asks for the number of batches again
        for number in range(3):
            passes.on_epoch_begin()
            assert a_pass(passes, length) == epoch(number, length)
        assert source.opened == 3


def test_a_second_fit_goes_on_with_the_next_epoch():
    for length in (1, 2, 5):
        passes = Passes(Source(length).open)
        for number in range(3):
            a_pass(passes, min(2, length))
            passes.on_epoch_begin()
            assert a_pass(passes, length) == epoch(number, length)


def test_a_pass_that_was_broken_off_begins_again():
    source = Source(7)
    passes = Passes(source.open)
    passes.on_epoch_begin()
    assert a_pass(passes, 5) == epoch(0, 7)[:5]
    passes.on_epoch_begin()
    assert a_pass(passes, 7) == epoch(0, 7)
    assert source.closed == 1


def test_epochs_that_end_inside_a_pass():
    passes = Passes(Source(7).open)
    passes.on_epoch_begin()  # fit(steps_per_epoch=3)
    assert a_pass(passes, 3) == epoch(0, 7)[:3]
    passes.on_epoch_begin()
    assert [passes.next_batch() for _ in range(3)] == epoch(0, 7)[3:6]
    passes.on_epoch_begin()
    assert passes.next_batch() == (0, 6)
    assert a_pass(passes, 2) == epoch(1, 7)[:2]


def test_more_than_there_is_begins_the_next_epoch():
    passes = Passes(Source(3).open)
    assert [passes.next_batch() for _ in range(5)] == [*epoch(0, 3), *epoch(1, 3)[:2]]


def test_forgetting_ends_the_stream():
    source = Source(7)
    passes = Passes(source.open)
    a_pass(passes, 4)
    passes.forget()
    assert source.closed == 1
    assert passes.num_batches is None
