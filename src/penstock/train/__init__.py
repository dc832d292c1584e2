"""Training: the fit loop, the hybrid context, the step on a device, checkpoints.

>>> __all__
['Checkpointer', 'DeviceStep', 'History', 'TrainBatch', 'TrainContext', 'evaluate', 'fit', 'slots_of']
"""

from penstock.core.extras import require

require("torch", "torch")

from penstock.train.batch import TrainBatch  # noqa: E402
from penstock.train.checkpoint import Checkpointer  # noqa: E402
from penstock.train.context import TrainContext  # noqa: E402
from penstock.train.feeder import slots_of  # noqa: E402
from penstock.train.fit import fit  # noqa: E402
from penstock.train.gpu import DeviceStep  # noqa: E402
from penstock.train.history import History  # noqa: E402
from penstock.train.hybrid import evaluate  # noqa: E402

__all__ = [
    "Checkpointer",
    "DeviceStep",
    "History",
    "TrainBatch",
    "TrainContext",
    "evaluate",
    "fit",
    "slots_of",
]
