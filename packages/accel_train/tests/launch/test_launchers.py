"""Ranks that MPI's or Slurm's launcher started: their place, and a job of them."""

import os
import shutil
import socket
import sys

import pytest
from accel_tests.children import clean_environment, run_command

from accel_core import LaunchError
from accel_train.launch.launchers import find_launcher, torchrun_variables
from accel_train.launch.rendezvous import read_rank

#: As `mpirun -n 2` of Open MPI 4.1.4 sets them for its second process on one host.
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_RANK": "1",
}
#: As `mpiexec.hydra -n 2` of MPICH 4.0 sets them.
MPICH = {
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
    "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "2",
}
#: By Slurm's manual (srun, "OUTPUT ENVIRONMENT VARIABLES"), of the third of four tasks on two nodes.
SLURM = {
    "SLURM_JOB_ID": "123456",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "node[03-04]",
}
ONE_HOST = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


@pytest.mark.parametrize("variables", [OPEN_MPI, MPICH], ids=["Open MPI", "MPICH"])
def test_mpi_tells_the_whole_place_on_one_host(variables):
    assert torchrun_variables(variables) == ONE_HOST


def test_slurm_tells_the_first_host_and_a_port_of_the_job():
    assert torchrun_variables(SLURM) == {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "node03",
        "MASTER_PORT": "23456",
    }


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node7", "node7"),
        ("node[03-05,9],login1", "node03"),
        ("gpu[2,4]-ib", "gpu2-ib"),
        ("a,b", "a"),
    ],
)
def test_the_first_host_of_slurms_list(nodes, first):
    variables = torchrun_variables({**SLURM, "SLURM_STEP_NODELIST": nodes})
    assert variables["MASTER_ADDR"] == first


def test_torchruns_own_variables_come_first():
    assert torchrun_variables({**OPEN_MPI, "RANK": "0"}) == {}


def test_a_variable_that_is_set_is_kept():
    variables = torchrun_variables({**OPEN_MPI, "MASTER_PORT": "4000"})
    assert "MASTER_PORT" not in variables


def test_mpi_comes_before_the_slurm_that_started_its_daemon():
    daemon = {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    assert torchrun_variables({**daemon, **OPEN_MPI})["RANK"] == "1"


def test_pmi2_under_slurm_has_the_local_rank_in_slurms_variable():
    variables = torchrun_variables({**SLURM, "PMI_RANK": "2", "PMI_SIZE": "4"})
    assert variables["LOCAL_RANK"] == "0"


def test_a_batch_script_is_no_rank():
    """Slurm sets these in the script of `sbatch --ntasks=8`, which is one process."""
    batch = {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
    assert find_launcher(batch) is None
    assert torchrun_variables(batch) == {}


def test_a_later_rank_of_pmix_is_known_to_have_others():
    launcher = find_launcher({"PMIX_RANK": "1"})
    assert launcher is not None
    assert launcher.name == "PMIx"


def test_what_mpi_does_not_tell_is_named():
    """On several hosts MPI's variables do not name rank 0's."""
    several = {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    environ = {**several, **torchrun_variables(several)}
    del environ["RANK"]
    with pytest.raises(
        LaunchError, match=r"although Open MPI started .* rank 1\. Set "
    ):
        read_rank(environ=environ)


PROGRAM = """
import torch
from accel_train import init_process_group
with init_process_group(timeout=60) as rank:
    value = torch.ones(1, device=rank.device)
    torch.distributed.all_reduce(value)
    rank.barrier()
    rank.print(rank.world_size, value.item())
"""


@pytest.mark.parametrize("launcher", ["mpirun.openmpi", "mpiexec.hydra"])
def test_processes_of_mpi_are_ranks_of_a_job(launcher, tmp_path):
    pytest.importorskip("torch")
    command = shutil.which(launcher)
    if command is None:
        pytest.skip(f"{launcher} is not installed")
    script = tmp_path / "sum.py"
    script.write_text(PROGRAM)
    options = ["--allow-run-as-root", "--oversubscribe"] if "open" in launcher else []
    environ = clean_environment(DS_ACCELERATOR="cpu", MASTER_PORT=str(_free_port()))
    done = run_command(
        [command, *options, "-n", "2", sys.executable, os.fspath(script)], environ
    )
    assert done.succeeded().stdout.strip() == "2 2.0"


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
