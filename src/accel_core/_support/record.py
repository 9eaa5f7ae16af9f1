"""`Record` and `dataclass`: `NamedTuple` and the standard `dataclass`, for what every choice passes through.

To type checkers they are just those. A process that chooses makes some twenty such classes at its first call,
and `NamedTuple` compiles source text for each (75 to 110 µs, five to ten times what this takes); DeepSpeed's
whole first call takes 13 ms. Fields are read from `__annotations__`, whose values are never evaluated. A
dataclass of many fields takes a millisecond more, and its module loads `inspect`: 7 ms without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Record", "dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
    from typing import NamedTuple as Record
else:
    from _collections import _tuplegetter
    from types import MappingProxyType

    class _RecordType(type):
        """Makes each annotated name of a class a field, in order; a subclass may add methods only."""

        def __new__(mcs, name, bases, namespace):
            fields = tuple(namespace.get("__annotations__", ()))
            if fields:
                defaults = {field: namespace.pop(field) for field in fields if field in namespace}
                if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                    raise TypeError(f"{name}: a field without a default stands after one that has a default")
                namespace |= {field: _tuplegetter(at, "") for at, field in enumerate(fields)}
                namespace |= {"_fields": fields, "_field_defaults": defaults, "__match_args__": fields}
            namespace.setdefault("__slots__", ())
            return super().__new__(mcs, name, bases, namespace)

        @property
        def __signature__(cls):
            from inspect import Parameter, Signature

            return Signature(
                [
                    Parameter(
                        field,
                        Parameter.POSITIONAL_OR_KEYWORD,
                        default=cls._field_defaults.get(field, Parameter.empty),
                    )
                    for field in cls._fields
                ]
            )

    class Record(tuple, metaclass=_RecordType):
        """A tuple whose items have names."""

        __slots__ = ()
        _fields = ()
        _field_defaults = MappingProxyType({})

        def __new__(cls, *values, **named):
            if named or len(values) != len(cls._fields):
                values = cls._arranged(values, named)
            return tuple.__new__(cls, values)

        @classmethod
        def _arranged(cls, values, named):
            """All values in the order of the fields; raises `TypeError` as a function's call does."""
            defaults, left = cls._field_defaults, cls._fields[len(values) :]
            if len(values) <= len(cls._fields) and named.keys() <= set(left):
                try:
                    return (*values, *[named[f] if f in named else defaults[f] for f in left])
                except KeyError:  # one is missing
                    pass
            wrong = [name for name in named if name not in left]
            missing = [field for field in left if field not in named and field not in defaults]
            raise TypeError(
                f"{cls.__name__}({', '.join(cls._fields)}) was given {len(values)} values"
                + (f" and {', '.join(named)}" if named else "")
                + (f"; missing: {', '.join(missing)}" if missing else "")
                + (f"; unknown or given twice: {', '.join(wrong)}" if wrong else "")
            )

        @classmethod
        def _make(cls, values):
            """The record of these values, in the order of the fields."""
            return cls(*values)

        def _asdict(self):
            """The values by their names."""
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **named):
            """The record with other values under these names."""
            return type(self)(**{**self._asdict(), **named})

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in self._asdict().items())})"

    class _Fields:
        """`__dataclass_fields__`, made when `dataclasses.replace` or `fields` first asks for it."""

        def __get__(self, instance, owner):
            import dataclasses

            dataclasses.dataclass(init=False, eq=False, repr=False, kw_only=True)(owner)
            return owner.__dict__["__dataclass_fields__"]

    class _Signature:
        """`__signature__`: the fields by name, for `help()` and editors; made when they ask."""

        def __get__(self, instance, owner):
            from inspect import Parameter, Signature

            kind = Parameter.KEYWORD_ONLY
            types = owner.__annotations__
            defaults = {name: vars(owner).get(name, Parameter.empty) for name in types}
            return Signature(
                [Parameter(name, kind, default=defaults[name], annotation=types[name]) for name in types]
            )

    def dataclass(**_):
        """The fields; the class has its own `__init__`, comparison and refusal to be changed."""

        def with_fields(cls):
            cls.__dataclass_fields__ = _Fields()
            cls.__signature__ = _Signature()
            return cls

        return with_fields
