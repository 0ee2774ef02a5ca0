"""What happened: what each batch cost, who waited for whom, and the log. Knows nothing of how batches are made."""

from swift_loader.telemetry.account import Account, Owner
from swift_loader.telemetry.log import Log
from swift_loader.telemetry.picture import Moments
from swift_loader.telemetry.prediction import Measured, Predicted, predict
from swift_loader.telemetry.record import BatchRecord
from swift_loader.telemetry.recorder import Late, Recorder
from swift_loader.telemetry.report import Standing, rank_table, report
from swift_loader.telemetry.trace import Trace

__all__ = [
    "Account",
    "BatchRecord",
    "Late",
    "Log",
    "Measured",
    "Moments",
    "Owner",
    "Predicted",
    "Recorder",
    "Standing",
    "Trace",
    "predict",
    "rank_table",
    "report",
]
