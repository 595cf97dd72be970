# SPDX-License-Identifier: Apache-2.0
"""Arguments and results as trees: lists, tuples, dicts, dataclasses, named tuples, and classes that `tessera.pytree` names.

The order of leaves is that of client/leaves.cpp, which flattens the arguments of every call; what is here runs off the hot
path.
"""

import dataclasses
import enum

from .. import _core
from .errors import error
from .symbolic import SymFloat, SymInt

Tensor = _core.Tensor
_NUMBERS = (bool, int, float)


class _Kind:
    """How objects of a class are taken apart."""

    def __init__(self, cls, name, fields, frozen):
        self.cls, self.name, self.fields, self.frozen = cls, name, fields, frozen

    def parts(self, o):
        return [getattr(o, f) for f in self.fields(o)]


_kinds = {}
_names = {}


def _register(cls, fields, frozen):
    name = f"{cls.__module__}.{cls.__qualname__}"
    count = _names[name] = _names.get(name, 0) + 1
    kind = _kinds[cls] = _Kind(cls, name if count == 1 else f"{name}#{count}", fields, frozen)
    return kind


def pytree(cls):
    """Class decorator: arguments of this class are taken apart into their attributes, in the order in which they were set.

    A compiled function may assign them: tensors are written back. Attributes that it reads as numbers or texts are guarded.
    """
    _register(cls, lambda o: list(vars(o)), False)
    return cls


def _kind_of(o):
    cls = type(o)
    kind = _kinds.get(cls)
    if kind is None:
        if dataclasses.is_dataclass(cls):
            names = [f.name for f in dataclasses.fields(cls)]
            kind = _register(cls, lambda o: names, cls.__dataclass_params__.frozen)
        elif isinstance(o, tuple) and hasattr(cls, "_fields"):
            names = list(cls._fields)
            kind = _register(cls, lambda o: names, True)
        elif any(k.cls in cls.__mro__ for k in list(_kinds.values()) if not dataclasses.is_dataclass(k.cls)):
            kind = _register(cls, lambda o: list(vars(o)), False)  # a subclass of a class that pytree() names
    return kind


def foreign(o):
    """Another library's array as a tensor, or None."""
    if hasattr(o, "__dlpack__"):
        return _core.from_dlpack(o)
    if hasattr(o, "__array__") and not isinstance(o, type):
        import numpy

        return _core.from_dlpack(numpy.asarray(o))
    return None


def describe(o):
    """What the flattening asks about an object that is no leaf and no container that it knows."""
    kind = _kinds.get(type(o))
    tensor = foreign(o) if kind is None else None
    if tensor is not None:
        return None, tensor
    kind = kind or _kind_of(o)
    if kind is not None:
        return kind.name, kind.parts(o)
    if isinstance(o, enum.Enum):
        return f"{type(o).__module__}.{type(o).__qualname__}.{o.name}", ()
    if type(o) in (SymInt, SymFloat):
        raise error("TSR-F001", "a symbolic number of a traced function is passed to a compiled function outside its trace")
    if tensor is not None:
        return None, tensor
    raise error(
        "TSR-F084",
        f"an argument of a compiled function is or holds a {type(o).__module__}.{type(o).__qualname__}, expected tensors, "
        f"numbers, texts, lists, tuples, dicts, dataclasses",
        "put @tessera.pytree before the class, or let the function find the object where it is defined",
    )


TENSOR, NUMBER, VALUE = range(3)


def is_tensor(o):
    return isinstance(o, Tensor)


class Walk:
    """One pass over a tree in the order of leaves. Subclasses say what becomes of each."""

    def __init__(self):
        self.leaf = 0
        self.made = {}  # copies of mutable containers, by identity, with what they are copies of
        self.repeating = 0  # within a container that has been visited before

    # What a leaf becomes; `path` is its accessors from the arguments on, `kind` one of the three above.
    def take(self, leaf, kind, o, path):
        raise NotImplementedError

    # A leaf that only guards look at.
    def structure(self, leaf, text, path):
        pass

    def _next(self):
        self.leaf += 1
        return self.leaf - 1

    def visit(self, o, path):
        if isinstance(o, Tensor):
            return self.take(self._next(), TENSOR, o, path)
        if isinstance(o, bool) or o is None or isinstance(o, str):
            return self.take(self._next(), VALUE, o, path)
        if isinstance(o, _NUMBERS):
            return self.take(self._next(), NUMBER, o, path)
        cls = type(o)
        if cls in (list, tuple):
            self.structure(self._next(), "type", path)
            self.structure(self._next(), "", path)
            if cls is tuple:
                return tuple(self.visit(v, path + (i,)) for i, v in enumerate(o))
            return self._container(o, [], lambda made: made.extend(self.visit(v, path + (i,)) for i, v in enumerate(o)))
        if cls is dict:
            self.structure(self._next(), "", path)
            self.structure(self._next(), "keys", path)
            return self._container(o, {}, lambda made: made.update((k, self.visit(v, path + (Key(k),))) for k, v in o.items()))
        kind = _kind_of(o)
        if kind is None:
            if isinstance(o, enum.Enum):
                self.structure(self._next(), "", path)
                return o
            tensor = foreign(o)
            return self.take(self._next(), TENSOR, tensor, path)
        self.structure(self._next(), "type", path)
        names = kind.fields(o)
        if kind.frozen:
            parts = {n: self.visit(getattr(o, n), path + (Field(n),)) for n in names}
            if isinstance(o, tuple):
                return cls(**parts)
            made = object.__new__(cls)
            for n, v in parts.items():
                object.__setattr__(made, n, v)
            return made

        def fill(made):
            for n in names:
                object.__setattr__(made, n, self.visit(getattr(o, n), path + (Field(n),)))

        return self._container(o, object.__new__(cls), fill)

    def _container(self, o, made, fill):
        known = self.made.get(id(o))
        if known is not None:  # one object stays one object; its leaves are counted again
            self.repeating += 1
            fill(made)
            self.repeating -= 1
            return known[0]
        self.made[id(o)] = (made, o)
        fill(made)
        return made


class Key:
    __slots__ = ("key",)

    def __init__(self, key):
        self.key = key


class Field:
    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name


def path_text(names, path):
    text = names[path[0]] if path[0] < len(names) else f"arg{path[0]}"
    for step in path[1:]:
        if type(step) is Field:
            text += f".{step.name}"
        else:
            text += f"[{step.key!r}]" if type(step) is Key else f"[{step}]"
    return text


class Find(Walk):
    """The text of the path to leaf number `target`."""

    def __init__(self, names, target):
        super().__init__()
        self.names, self.target, self.found = names, target, None

    def take(self, leaf, kind, o, path):
        if leaf == self.target:
            self.found = path_text(self.names, path)
        return o

    def structure(self, leaf, text, path):
        if leaf == self.target:
            found = path_text(self.names, path)
            self.found = {"type": f"type({found})", "keys": f"keys({found}) that are no texts", "": found}[text]


def path_of(values, names, target):
    walk = Find(names, target)
    for i, v in enumerate(values):
        walk.visit(v, (i,))
        if walk.found is not None:
            return walk.found
    return "aliasing"


class Substitute(Walk):
    """A copy of the arguments whose leaves are what `tensor` and `number` make of them."""

    def __init__(self, tensor, number):
        super().__init__()
        self.tensor, self.number = tensor, number
        self.given = {}  # by leaf: what the function gets, and its path

    def take(self, leaf, kind, o, path):
        made = self.tensor(leaf, o) if kind == TENSOR else self.number(leaf, o) if kind == NUMBER else o
        self.given[leaf] = (made, path)
        return made


def same_leaf(a, b):
    if a is b:
        return True
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and getattr(a, "_value", None) == getattr(b, "_value", -2)
    return type(a) is type(b) and type(a) not in (SymInt, SymFloat) and a == b


class Changes(Walk):
    """Which tensors of the arguments the function has replaced: (leaf, path, tensor)."""

    def __init__(self, given, names):
        super().__init__()
        self.given, self.names, self.found = given, names, []

    def visit(self, o, path):
        if type(o) in (SymInt, SymFloat):
            return self.take(self._next(), NUMBER, o, path)
        return super().visit(o, path)

    def take(self, leaf, kind, o, path):
        if self.repeating:
            return o
        before = self.given.get(leaf)
        if before is None or _steps(before[1]) != _steps(path):
            raise restructured(path_text(self.names, path))
        if same_leaf(before[0], o):
            return o
        if kind == TENSOR and isinstance(before[0], Tensor):
            self.found.append((leaf, path, o))
            return o
        raise error(
            "TSR-F041",
            f"the compiled function changes the host value {path_text(self.names, path)}, which would not change again on "
            f"later calls",
            "make it a tensor (0-d), or change it outside the compiled function",
        )


def restructured(text):
    return error(
        "TSR-F041",
        f"the compiled function changes the structure of its arguments at {text}, which would not change again on later calls",
        "build the containers before the first call, or return them from the function",
    )


def _steps(path):
    return [s.key if type(s) is Key else s.name if type(s) is Field else s for s in path]


def at(o, steps):
    """What lies at the end of these steps."""
    for step in steps:
        o = getattr(o, step.name) if type(step) is Field else o[step.key if type(step) is Key else step]
    return o


def store(o, steps, value):
    """`o` with `value` at the end of these steps: changed in place where it can be, else a copy."""
    if not steps:
        return value
    step = steps[0]
    if type(step) is Field:
        child = getattr(o, step.name)
        made = store(child, steps[1:], value)
        if made is not child:
            if isinstance(o, tuple):
                return o._replace(**{step.name: made})
            kind = _kind_of(o)
            if kind is not None and kind.frozen:
                return dataclasses.replace(o, **{step.name: made})
            setattr(o, step.name, made)
        return o
    key = step.key if type(step) is Key else step
    child = o[key]
    made = store(child, steps[1:], value)
    if made is child:
        return o
    if isinstance(o, tuple):
        return o[:key] + (made,) + o[key + 1 :]
    o[key] = made
    return o


def holds_foreign(values):
    """Whether another library's array is among them or in their containers."""

    class Search(Walk):
        found = False

        def visit(self, o, path):
            if _kinds.get(type(o)) is None and not is_tensor(o) and (hasattr(o, "__dlpack__") or hasattr(o, "__array__")):
                self.found = True
                return o
            return super().visit(o, path)

        def take(self, leaf, kind, o, path):
            return o

    search = Search()
    for v in values:
        search.visit(v, (0,))
    return search.found


# ---------------------------------------------------------------------------------------------------------------------- results


class _Results(Walk):
    def __init__(self, convert):
        super().__init__()
        self.tensors, self.convert = [], convert

    def visit(self, o, path):
        if type(o) in (SymInt, SymFloat):
            return self.convert(o)
        return super().visit(o, path)

    def take(self, leaf, kind, o, path):
        if kind != TENSOR:
            return o
        self.tensors.append(o)
        return Slot(len(self.tensors) - 1)


class Slot:
    """In place of a tensor of a result: its number."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


def taken_apart(results, convert):
    """(the results with slots instead of tensors, the tensors)."""
    walk = _Results(convert)
    return walk.visit(results, (0,)), walk.tensors


def filled(skeleton, tensors):
    if type(skeleton) is Slot:
        return tensors[skeleton.number]
    cls = type(skeleton)
    if cls is list or cls is tuple:
        return cls(filled(v, tensors) for v in skeleton)
    if cls is dict:
        return {k: filled(v, tensors) for k, v in skeleton.items()}
    kind = _kinds.get(cls)
    if kind is None:
        return skeleton
    parts = {n: filled(getattr(skeleton, n), tensors) for n in kind.fields(skeleton)}
    if isinstance(skeleton, tuple):
        return cls(**parts)
    made = object.__new__(cls)
    for n, v in parts.items():
        object.__setattr__(made, n, v)
    return made


def mapped(function, tree):
    """The tree with function(leaf) for each tensor and number."""

    class Mapped(Walk):
        def visit(self, o, path):
            if type(o) in (SymInt, SymFloat):
                return function(o)
            return super().visit(o, path)

        def take(self, leaf, kind, o, path):
            return o if kind == VALUE else function(o)

    return Mapped().visit(tree, (0,))


def leaves(tree):
    found = []
    mapped(found.append, tree)
    return found


def tree_map(function, tree, *others):
    """function over the tensors and numbers of trees of one structure."""
    rest = [iter(leaves(t)) for t in others]
    return mapped(lambda x: function(x, *(next(r) for r in rest)), tree)
