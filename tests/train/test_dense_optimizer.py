"""The optimizer of a model for which none was given."""

import torch

from penstock.train.dense_optimizer import default_optimizer


def test_the_default_is_none_where_there_is_nothing_to_train():
    assert default_optimizer([torch.nn.ReLU()]) is None
