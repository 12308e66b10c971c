"""JSON that several readers share: equal to plain dicts and lists, printed and written like them, never changed."""

from typing import Any, NoReturn


def _refuse(self: object, *_values: object, **_named: object) -> NoReturn:
    raise TypeError("this JSON is shared between its readers and cannot be changed; copy it first")


class ReadOnlyDict(dict[str, Any]):
    """A dict that cannot be changed. Its copies can: `dict(it)`, `{**it}`, `copy.deepcopy(it)`, unpickled ones."""

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, (dict(self),)


class ReadOnlyList(list[Any]):
    """A list that cannot be changed; its copies can."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = _refuse
    remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[type, tuple[list[Any]]]:
        return list, (list(self),)


def read_only(value: Any) -> Any:
    """The same JSON, read-only at every depth; an object that stands in several places stays one object."""
    if isinstance(value, ReadOnlyDict | ReadOnlyList):
        return value
    if isinstance(value, dict):
        return ReadOnlyDict({name: read_only(inner) for name, inner in value.items()})
    return ReadOnlyList(map(read_only, value)) if isinstance(value, list) else value
