"""Training: the fit loop and its records, the hybrid context, the step on a device, checkpoints.

>>> __all__
['CheckpointRecord', 'Checkpointer', 'DeviceStep', 'Feed', 'History', 'Record', 'TrainBatch', 'TrainContext',
 'TrainRecord', 'ValidRecord', 'evaluate', 'fit', 'record_from_dict', 'record_to_dict']
"""

from penstock.core.extras import require

require("torch", "torch")

from penstock.train.batch import TrainBatch  # noqa: E402
from penstock.train.checkpoint import Checkpointer  # noqa: E402
from penstock.train.context import TrainContext  # noqa: E402
from penstock.train.evaluation import evaluate  # noqa: E402
from penstock.train.executors.device_step import DeviceStep  # noqa: E402
from penstock.train.fit import fit  # noqa: E402
from penstock.train.history import History  # noqa: E402
from penstock.train.publishing import Feed  # noqa: E402
from penstock.train.records import (  # noqa: E402
    CheckpointRecord,
    Record,
    TrainRecord,
    ValidRecord,
    record_from_dict,
    record_to_dict,
)

__all__ = [
    "CheckpointRecord",
    "Checkpointer",
    "DeviceStep",
    "Feed",
    "History",
    "Record",
    "TrainBatch",
    "TrainContext",
    "TrainRecord",
    "ValidRecord",
    "evaluate",
    "fit",
    "record_from_dict",
    "record_to_dict",
]
