"""Click logs of any size with a planted teacher: a model can learn them, and the best reachable AUC is known."""

from penstock.data.synthetic.click_log import (
    CARDINALITIES,
    CRITEO_DTYPES,
    CRITEO_NAMES,
    criteo,
    criteo_schema,
    teacher_probability,
)
from penstock.data.synthetic.multi_hot import MultiHotTeacher, multihot
from penstock.data.synthetic.output import Summary
from penstock.data.synthetic.ratings import RatingTeacher, movielens
from penstock.data.synthetic.teacher import Teacher

__all__ = [
    "CARDINALITIES",
    "CRITEO_DTYPES",
    "CRITEO_NAMES",
    "MultiHotTeacher",
    "RatingTeacher",
    "Summary",
    "Teacher",
    "criteo",
    "criteo_schema",
    "movielens",
    "multihot",
    "teacher_probability",
]
