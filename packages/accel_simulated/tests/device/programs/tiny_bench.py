"""Run accel bench with tiny sizes."""

import sys
from accel_tests.bench_effort import TINY
from accel_core.cli import main
from accel_tools.commands import bench

bench.QUICK = TINY
sys.argv = ["accel", "bench", "--quick", "--json", *sys.argv[1:]]
main()
