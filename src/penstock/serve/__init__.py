"""Serving: predictions on raw rows.

>>> __all__
['ModelCard', 'Predictor', 'load_model', 'save_model']
"""

from penstock.core.extras import require

require("torch", "torch")

from penstock.serve.card import ModelCard  # noqa: E402
from penstock.serve.model import load_model, save_model  # noqa: E402
from penstock.serve.predictor import Predictor  # noqa: E402

__all__ = ["ModelCard", "Predictor", "load_model", "save_model"]
