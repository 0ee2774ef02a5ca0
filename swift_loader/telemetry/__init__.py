"""What happened: what each batch cost, who waited for whom, and the log. Knows nothing of how batches are made."""

from swift_loader.telemetry.log import Log
from swift_loader.telemetry.picture import Moments
from swift_loader.telemetry.record import BatchRecord
from swift_loader.telemetry.recorder import Recorder
from swift_loader.telemetry.trace import Trace

__all__ = ["BatchRecord", "Log", "Moments", "Recorder", "Trace"]
