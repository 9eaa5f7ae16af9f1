"""Says why no device is counted on the machine in COUNT_ROOT, as a user who may open nothing; then in a job.

`test_uncounted.py` runs it.
"""

import grp  # noqa: F401 - imported while this process may still read it
import os
import stat  # noqa: F401

from accel_tests.asking import counts_none

from accel_core.backend import Backend, Hardware, ResourceRequest
from accel_core.hardware import placement  # noqa: F401

backend = Backend(
    name="acme",
    priority=350,
    device_type="acme",
    hardware=Hardware(nodes=("/dev/acme[0-9]*",)),
    request=ResourceRequest(slurm="gpu"),
)
root = os.environ["COUNT_ROOT"]
if os.geteuid() == 0:  # root may open every file
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for job in ("", "4711"):
    if job:
        os.environ["SLURM_JOB_ID"] = job
    outcome = counts_none(backend, root)
    print(outcome.reason, outcome.hint, sep=" | ")
