"""Loaders: from files to batches at the speed of the decoder. One adapter file per framework."""

from penstock.core.batch import Ragged
from penstock.loader.loader import Loader
from penstock.loader.plan import EpochPlan
from penstock.loader.sampling import NegativeSampling, WeightedSampling
from penstock.loader.settings import Pad
from penstock.loader.stats import Stats

__all__ = ["EpochPlan", "Loader", "NegativeSampling", "Pad", "Ragged", "Stats", "WeightedSampling"]
