"""Where the hosts of a job meet."""

from argparse import Namespace

import pytest

from accel_train.launch.network import rendezvous_endpoint


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [
        ("node0:4000", "node0", 4000),
        ("node0", "node0", 29500),
        ("[::1]:4000", "::1", 4000),
        ("", "127.0.0.1", 29501),
    ],
)
def test_the_endpoint_or_the_masters_address_is_where_the_hosts_meet(
    endpoint, host, port
):
    arguments = Namespace(
        rdzv_endpoint=endpoint, master_addr="127.0.0.1", master_port=29501
    )
    assert rendezvous_endpoint(arguments) == (host, port)
