"""What a person starts, from end to end: ETL, training, scoring, the demo and the doctor.

>>> __all__
['Draft', 'EtlJob', 'EtlResult', 'Explanation', 'Importance', 'PredictResult', 'RunFolder', 'RunRecorder',
'ScoreResult', 'TrainJob', 'TrainResult', 'TrainSettings', 'TrainingStopped', 'compare_runs', 'draft_recipe',
'evaluate_model', 'explain_model', 'predict_files']
"""

from typing import TYPE_CHECKING

from penstock.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.jobs.comparing import compare_runs
    from penstock.jobs.draft import Draft, draft_recipe
    from penstock.jobs.etl import EtlJob, EtlResult
    from penstock.jobs.explaining import Explanation, Importance, explain_model
    from penstock.jobs.recorder import RunRecorder
    from penstock.jobs.run_folder import RunFolder
    from penstock.jobs.scoring import PredictResult, ScoreResult, evaluate_model, predict_files
    from penstock.jobs.settings import TrainSettings
    from penstock.jobs.training import TrainJob
    from penstock.jobs.training_result import TrainingStopped, TrainResult

__all__ = [
    "Draft",
    "EtlJob",
    "EtlResult",
    "Explanation",
    "Importance",
    "PredictResult",
    "RunFolder",
    "RunRecorder",
    "ScoreResult",
    "TrainJob",
    "TrainResult",
    "TrainSettings",
    "TrainingStopped",
    "compare_runs",
    "draft_recipe",
    "evaluate_model",
    "explain_model",
    "predict_files",
]

_HOMES = {
    "Draft": "draft",
    "draft_recipe": "draft",
    "EtlJob": "etl",
    "EtlResult": "etl",
    "Explanation": "explaining",
    "Importance": "explaining",
    "PredictResult": "scoring",
    "RunFolder": "run_folder",
    "RunRecorder": "recorder",
    "ScoreResult": "scoring",
    "TrainJob": "training",
    "TrainResult": "training_result",
    "TrainSettings": "settings",
    "TrainingStopped": "training_result",
    "compare_runs": "comparing",
    "evaluate_model": "scoring",
    "explain_model": "explaining",
    "predict_files": "scoring",
}
__getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
