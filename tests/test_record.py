"""A `Record` is a `NamedTuple`, and `Words` are an enumeration, but for the cost of making their classes."""

from __future__ import annotations

import copy
import enum
import inspect
import json
import pickle
from typing import NamedTuple

import pytest

from accel_core._support.record import Record, Words


class Point(Record):
    x: int
    y: int = 2
    name: str = ""

    @property
    def sum(self) -> int:
        return self.x + self.y


class Standard(NamedTuple):
    x: int
    y: int = 2
    name: str = ""


@pytest.mark.parametrize(
    ("values", "named"), [((1,), {}), ((1, 3), {}), ((1, 3, "a"), {}), ((), {"x": 1}), ((1,), {"name": "b"})]
)
def test_it_is_made_and_compared_as_a_named_tuple(values, named):
    ours, standard = Point(*values, **named), Standard(*values, **named)
    assert ours == standard  # both are the tuple of their values
    assert hash(ours) == hash(standard)
    assert (ours.x, ours.y, ours.name) == tuple(ours) == tuple(standard)
    assert ours._asdict() == standard._asdict()
    assert ours._replace(y=7) == standard._replace(y=7)
    assert repr(ours) == repr(standard).replace("Standard", "Point")
    assert ours.sum == ours.x + ours.y


@pytest.mark.parametrize(
    ("values", "named", "names"),
    [
        ((), {}, ["missing: x"]),
        ((1, 2, "a", 4), {}, ["was given 4 values"]),
        ((1,), {"x": 2}, ["given twice: x"]),
        ((1,), {"z": 2}, ["unknown or given twice: z"]),
    ],
)
def test_a_wrong_call_is_a_type_error_that_names_the_fields(values, named, names):
    with pytest.raises(TypeError) as caught:
        Point(*values, **named)
    assert all(name in str(caught.value) for name in ["Point(x, y, name)", *names])
    with pytest.raises(TypeError):
        Standard(*values, **named)


def test_copies_pickles_signature_and_match():
    point = Point(1, name="a")
    assert pickle.loads(pickle.dumps(point)) == copy.deepcopy(point) == point
    assert type(pickle.loads(pickle.dumps(point))) is Point
    assert str(inspect.signature(Point)) == "(x, y=2, name='')"
    assert (Point._fields, Point._field_defaults) == (Standard._fields, Standard._field_defaults)
    match point:
        case Point(x, y, name=name):
            assert (x, y, name) == (1, 2, "a")


def test_nothing_can_be_assigned():
    with pytest.raises(AttributeError):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Point(1).other = 2  # type: ignore[attr-defined]


def test_a_default_before_a_field_without_one_is_refused():
    with pytest.raises(TypeError, match="without a default"):

        class _Wrong(Record):
            x: int = 1
            y: int  # type: ignore[misc]


class Colour(Words):
    RED = "red"
    DARK_BLUE = "dark blue"

    def __str__(self) -> str:
        return self.value

    @property
    def is_dark(self) -> bool:
        return self is Colour.DARK_BLUE


class StandardColour(str, enum.Enum):
    RED = "red"
    DARK_BLUE = "dark blue"

    def __str__(self) -> str:
        return self.value


def test_words_are_found_listed_and_shown_as_those_of_an_enumeration():
    for ours, standard in zip(Colour, StandardColour, strict=True):
        assert ours == standard == ours.value  # each is its word
        assert (ours.name, ours.value, type(ours.value)) == (standard.name, standard.value, str)
        assert (str(ours), f"{ours}", json.dumps({ours: ours})) == (
            (str(standard), f"{standard}", json.dumps({standard: standard}))
        )
        assert hash(ours) == hash(standard)
        assert repr(ours) == repr(standard).replace("Standard", "")
        assert Colour(ours.value) is Colour[ours.name] is getattr(Colour, ours.name) is ours
    assert len(Colour) == 2
    assert list(Colour.__members__) == list(StandardColour.__members__)
    assert "red" in Colour
    assert "green" not in Colour
    assert [colour.is_dark for colour in Colour] == [False, True]


def test_a_copy_of_a_word_is_the_word_itself():
    for copied in (pickle.loads(pickle.dumps(Colour.RED)), copy.deepcopy(Colour.RED), copy.copy(Colour.RED)):
        assert copied is Colour.RED


def test_another_word_is_refused_and_none_can_be_replaced():
    with pytest.raises(ValueError, match="'green' is not a valid Colour, expected one of red, dark blue"):
        Colour("green")
    with pytest.raises(KeyError):
        Colour["GREEN"]
    with pytest.raises(AttributeError, match=r"Colour\.RED"):
        Colour.RED = "green"  # type: ignore[assignment,misc]
    with pytest.raises(AttributeError, match=r"Colour\.RED"):
        del Colour.RED
