"""Messages of a rank to itself."""

from datetime import timedelta

import pytest

pytest.importorskip("torch")

import torch

from accel_train.staged.own_messages import OwnMessages


def row(*values):
    return torch.tensor(values, dtype=torch.uint8)


@pytest.fixture
def messages():
    return OwnMessages(timedelta(milliseconds=10))


def test_a_message_arrives_whether_the_send_or_the_receive_is_first(messages):
    sent_first, received_first = row(0, 0), row(0, 0)
    early = messages.receive(received_first, tag=0)
    assert not early.is_completed()
    messages.send(row(1, 2), tag=0)
    messages.send(row(3, 4), tag=0)
    late = messages.receive(sent_first, tag=0)
    assert early.is_completed()
    assert late.is_completed()
    late.wait()
    early.wait()
    assert received_first.tolist() == [1, 2]
    assert sent_first.tolist() == [3, 4]


def test_a_receive_gets_the_message_with_its_tag(messages):
    messages.send(row(1), tag=1)
    messages.send(row(2), tag=2)
    target = row(0)
    messages.receive(target, tag=2).wait()
    assert target.item() == 2


def test_a_receive_without_a_send_names_the_tag_and_the_next_step(messages):
    expected = (
        r"not sent itself a message with tag 7 within 0.01 s. Next step: call isend\(\)"
    )
    with pytest.raises(RuntimeError, match=expected):
        messages.receive(row(0), tag=7).wait()


def test_a_message_of_another_size_is_not_copied(messages):
    target = row(0, 0)
    messages.send(row(1), tag=0)
    with pytest.raises(
        RuntimeError, match="received message has 1 bytes, expected 2 bytes"
    ):
        messages.receive(target, tag=0).wait()
    assert target.tolist() == [0, 0]
