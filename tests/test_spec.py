from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from fedskew.errors import FedskewError
from fedskew.spec import Spec, parse


class Plain(Spec):
    kind: Literal["plain"] = "plain"


class Valued(Spec):
    kind: Literal["valued"] = "valued"
    positional: ClassVar[str] = "alpha"
    alpha: float = Field(ge=0)
    keep: bool = False
    size: int = 1
    clients: int = 10


KINDS = (Plain, Valued)


@given(st.floats(0, 1e6), st.booleans(), st.integers(1, 99))
def test_the_short_form_round_trips(alpha, keep, size):
    spec = Valued(alpha=alpha, keep=keep, size=size)
    assert parse("thing", str(spec), KINDS) == spec


def test_the_short_form_is_short():
    assert str(Plain()) == "plain"
    assert str(Valued(alpha=0.1)) == "valued:0.1"
    assert str(Valued(alpha=1, clients=99)) == "valued:1"
    assert str(Valued(alpha=float("inf"), keep=True)) == "valued:inf,keep=true"
    assert Valued(alpha=0.5, keep=True).slug == "valued-0.5-keep-true"


def test_flags_keys_and_given_fields():
    assert parse("thing", "valued:2,keep,size=4", KINDS, clients=7) == Valued(alpha=2, keep=True, size=4, clients=7)
    assert parse("thing", "valued,alpha=2", KINDS).alpha == 2
    assert parse("thing", " plain ", KINDS) == Plain()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nope:1", "thing 'nope:1' is not known: choose one of plain, valued"),
        ("plain:3", "plain takes no value"),
        ("valued", "alpha is missing"),
        ("valued:-1", "alpha = '-1': it should be greater than or equal to 0"),
        ("valued:x", "alpha = 'x': it should be a valid number"),
        ("valued:1,colour=red", "unknown key 'colour'"),
    ],
)
def test_errors_give_field_value_and_rule(text, says):
    with pytest.raises(FedskewError) as error:
        parse("thing", text, KINDS)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_spec_is_frozen():
    with pytest.raises(Exception, match="frozen"):
        Valued(alpha=1).alpha = 2
