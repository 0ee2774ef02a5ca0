"""Submits examples/ray/plain.py to a cluster that runs, as a job, and prints what it prints.

ray start --head --include-dashboard=true          # needs: pip install 'ray[default]'
python examples/ray/submit.py http://127.0.0.1:8265
"""

import sys
import time
from pathlib import Path

from ray.job_submission import JobStatus, JobSubmissionClient


def main() -> None:
    client = JobSubmissionClient(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8265")
    folder = Path(__file__).resolve().parent
    job = client.submit_job(entrypoint="python plain.py", runtime_env={"working_dir": str(folder)})
    while not (status := client.get_job_status(job)).is_terminal():
        time.sleep(0.5)
    print(client.get_job_logs(job))
    if status is not JobStatus.SUCCEEDED:
        raise SystemExit(f"the job has ended as {status}")


if __name__ == "__main__":
    main()
