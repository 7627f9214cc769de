"""Specs: frozen, self-validating descriptions with a short string form, `kind[:value][,key=value...]`.

`classes:2`, `fedavgm:0.9,nesterov=false` and `emd:1.44` are the same thing on the command line, in a TOML file,
in a table and, with `slug`, in a file name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from fedskew.errors import FedskewError, from_validation


class Spec(BaseModel):
    """A frozen spec; a subclass has `kind: Literal[...]` and may name the field written after the colon."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
    kind: str
    positional: ClassVar[str | None] = None
    unwritten: ClassVar[frozenset[str]] = frozenset({"kind", "clients"})

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as e:
            raise from_validation(type(self).model_fields["kind"].default, e) from None

    def __str__(self) -> str:
        """The short form: fields that have their default value are left out."""
        head, rest = self.kind, []
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name == self.positional:
                head += "" if value is None else f":{_written(value)}"
            elif name not in self.unwritten and value != field.default:
                rest.append(f"{name}={_written(value)}")
        return ",".join([head, *rest])

    @property
    def slug(self) -> str:
        """The short form as part of a file name."""
        return "".join(c if c.isalnum() or c in ".-" else "-" for c in str(self))


AnySpec = TypeVar("AnySpec", bound=Spec)


def parse(what: str, text: str, kinds: Iterable[type[AnySpec]], **given: Any) -> AnySpec:
    """The spec that `text` describes; `given` adds fields that the text leaves out."""
    table = {k.model_fields["kind"].default: k for k in kinds}
    kind, separator, value = re.fullmatch(r"([^:,]*)([:,]?)(.*)", text.strip(), re.DOTALL).groups()  # type: ignore[union-attr]
    value = separator * (separator == ",") + value
    if kind not in table:
        raise FedskewError(f"{what} {text!r} is not known: choose one of {', '.join(table)}")
    chosen = table[kind]
    fields: dict[str, Any] = {}
    for i, part in enumerate(value.split(",") if value else []):
        key, equals, entry = part.partition("=")
        if i == 0 and part and not equals:
            if chosen.positional is None:
                raise FedskewError(f"{what} {text!r}: {kind} takes no value after the colon; write {kind!r}")
            fields[chosen.positional] = part
        elif equals:
            fields[key.strip()] = entry.strip()
        elif part:
            fields[part.strip()] = True
    return chosen(**(given | fields))


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, tuple):
        return "/".join(map(_written, value))
    return str(value)
