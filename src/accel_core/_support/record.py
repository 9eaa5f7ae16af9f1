"""`Record`, `Words`, `dataclass`: `NamedTuple`, an enumeration of `str`, the standard `dataclass`; made fast.

For what every choice passes through; to type checkers they are just those. A process that chooses makes some
twenty such classes at its first call, and `NamedTuple` compiles source text for each (75 to 110 µs, five to
ten times what this takes), `enum` takes 300 µs for two; DeepSpeed's whole first call takes 13 ms. Fields are
read from `__annotations__`, whose values are never evaluated. A dataclass of many fields takes a millisecond
more, and its module loads `inspect`: 7 ms without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Record", "Words", "dataclass"]

if TYPE_CHECKING:
    import enum
    from dataclasses import dataclass
    from typing import NamedTuple as Record

    class Words(str, enum.Enum):
        """A word of a few."""
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

    class _WordsType(type):
        """Makes each name in capitals a member: the one object of its word, found by name and by word."""

        def __new__(mcs, name, bases, namespace):
            words = {key: namespace.pop(key) for key in list(namespace) if key.isupper()}
            made = super().__new__(mcs, name, bases, {"__slots__": (), **namespace})
            members = {key: str.__new__(made, word) for key, word in words.items()}
            for key, member in {**members, "__members__": MappingProxyType(members)}.items():
                type.__setattr__(made, key, member)
            return made

        def __setattr__(cls, name, value):
            raise AttributeError(f"{cls.__name__}.{name} cannot be set")

        def __delattr__(cls, name):
            raise AttributeError(f"{cls.__name__}.{name} cannot be deleted")

        def __call__(cls, word):
            for member in cls:
                if member == word:
                    return member
            raise ValueError(f"{word!r} is not a valid {cls.__name__}, expected one of {', '.join(cls)}")

        def __getitem__(cls, name):
            return cls.__members__[name]

        def __iter__(cls):
            return iter(cls.__members__.values())

        def __len__(cls):
            return len(cls.__members__)

        def __contains__(cls, word):
            return word in cls.__members__.values()

    class Words(str, metaclass=_WordsType):
        """A word of a few."""

        __slots__ = ()

        @property
        def name(self):
            """The member's name: `"NO_DEVICE"`."""
            return next(name for name, member in type(self).__members__.items() if member is self)

        @property
        def value(self):
            """The word itself, a plain `str`."""
            return str.__str__(self)

        def __repr__(self):
            return f"<{type(self).__name__}.{self.name}: {self.value!r}>"

        def __reduce_ex__(self, _):
            return type(self), (self.value,)  # copies are the member itself

    class _Fields:
        """`__dataclass_fields__`, made when `dataclasses.replace` or `fields` first asks for it."""

        def __get__(self, instance, owner):
            import dataclasses

            # Of a class without types: in each that is a text, dataclasses searches for three special ones.
            types = owner.__annotations__
            defaults = {name: vars(owner)[name] for name in types if name in vars(owner)}
            plain = {**defaults, "__annotations__": dict.fromkeys(types, object), "__doc__": owner.__doc__}
            bare = type(owner.__name__, (), plain)
            dataclasses.dataclass(init=False, eq=False, repr=False, kw_only=True)(bare)
            fields = bare.__dataclass_fields__
            for name, field in fields.items():
                field.type = types[name]
            owner.__dataclass_fields__, owner.__dataclass_params__ = fields, bare.__dataclass_params__
            return fields

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
