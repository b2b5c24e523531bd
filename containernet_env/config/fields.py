"""Objects of files, whose classes declare their keys (``model.kinds``): read, described by a JSON Schema, written.

Every problem is found, each with its place, however many there are: an object is made of its good values, and its
rules see those.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from containernet_env.config.reader import Document, json_path
from containernet_env.model import hints
from containernet_env.model.kinds import (
    PATH,
    Chosen,
    Form,
    Key,
    Kind,
    Listed,
    Location,
    Named,
    Quantity,
    Refused,
    Rule,
    Section,
    keys_of,
    rules_of,
)

T = TypeVar("T")

# --- read -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Validated(Generic[T]):
    """An object of a document and all its problems: values that are refused or missing are no attributes of it."""

    value: T
    refusals: list[Refused]

    def is_good(self, at: Location) -> bool:
        """Whether nothing is wrong with what is at a place and below it."""
        return all(refused.place[: len(at)] != at for refused in self.refusals)


def validate(form: Form, document: Document) -> Validated[Any]:
    """Check a document; the value is ``None`` where nothing of it is good. Its paths are resolved, from its folder."""
    reader = _Reader(document.path.parent)
    value = reader.read(form, document.value, ())
    return Validated(None if value is _BAD else value, reader.refusals)


_BAD = object()


def _of_an_object(name: str, keys: Iterable[Key]) -> str | None:
    """A key beside the object that has it, in that object; ``None`` where none has it."""
    for key in keys:
        forms = key.form.forms if isinstance(key.form, Chosen) else (key.form,)
        if any(isinstance(form, type) and name in keys_of(form) for form in forms):
            return f'"{key.name}": {{"{name}": ...}}'
    return None


class _Reader:
    """Reads the values of a file in a folder, and collects all that is wrong with them."""

    def __init__(self, folder: Path) -> None:
        self.refusals: list[Refused] = []
        self._folder = folder

    def read(self, form: Form, value: Any, at: Location) -> Any:
        """The value at a place, made as far as it is good; ``_BAD`` where nothing is."""
        if isinstance(form, Chosen):
            return self.read(form.choose(value), value, at)
        if isinstance(form, Listed):
            return self._read_list(form, value, at)
        if isinstance(form, Named):
            return self._read_named(form, value, at)
        if isinstance(form, type):
            return self._read_object(form, value, at)
        try:
            return self._folder / form.read(value) if form is PATH else form.read(value)
        except Refused as refused:
            self.refusals.append(refused.below(at))
            return _BAD

    def _refuse(self, at: Location, message: str, allowed: str, got: str | None = None, at_key: bool = False) -> None:
        self.refusals.append(Refused(message, allowed, at, got, at_key))

    def _read_list(self, form: Listed, value: Any, at: Location) -> Any:
        if isinstance(value, list):
            if len(value) < form.low:
                self._refuse(at, "is too short", f"at least {form.low}", f"{len(value)} entries")
            if len(value) > form.high:
                self._refuse(at, "is too long", f"at most {form.high}{form.instead}", f"{len(value)} entries")
            read = [self.read(form.item, item, (*at, index)) for index, item in enumerate(value[: form.high])]
            for index, item in enumerate(read) if form.unique else ():
                if item is not _BAD and (first := read.index(item)) < index:
                    self._refuse((*at, index), f"repeats {json_path((*at, first))}", "each entry once")
        elif form.alone:
            read = [self.read(form.item, value, at)]
        else:
            self._refuse(at, "is not a list", "a list")
            return _BAD
        return _BAD if _BAD in read or len(read) < form.low else tuple(read)

    def _read_named(self, form: Named, raw: Any, at: Location) -> Any:
        if not isinstance(raw, dict):
            self._refuse(at, "is not an object", f"an object whose keys are each {form.name.form}")
            return _BAD
        read = {}
        for name, item in raw.items():
            try:
                form.name.read(name)
            except Refused as refused:
                self._refuse((*at, name), refused.message, form.name.form, at_key=True)
            read[name] = self.read(form.item, item, (*at, name))
        return _BAD if _BAD in read.values() else read

    def _read_object(self, kind: type, raw: Any, at: Location) -> Any:
        made: Any = object.__new__(kind)
        keys, before = keys_of(kind), len(self.refusals)
        own = {key.attribute for key in keys.values()}
        rest = (item for item in fields(kind) if item.name not in own and item.default is not MISSING)
        values: dict[str, Any] = {item.name: item.default for item in rest}
        parts: dict[str, Any] = {}
        is_object = isinstance(raw, dict)
        if issubclass(kind, Section):
            values |= {"at": at, "given": frozenset(raw if is_object else ()) & keys.keys()}
        for name, key in keys.items() if is_object else ():
            if name in raw:
                count = len(self.refusals)
                value = self.read(key.form, raw[name], (*at, name))
                (values if len(self.refusals) == count else parts)[key.attribute] = value
            elif key.is_required:
                self._refuse((*at, name), "is missing", _allowed(key.form))
            else:
                values[key.attribute] = key.default
        _set(made, values)
        if not is_object:
            self._refuse(at, "is not an object", _keys_form(kind))
            return made
        for name in raw:
            if name not in keys:
                meant = hints.closest_key(name, [*keys]) or _of_an_object(name, keys.values())
                message = f"is not a known key{f', did you mean {meant}?' if meant else ''}"
                self._refuse((*at, name), message, f"the keys {', '.join(keys)}", at_key=True)
        rules = rules_of(kind)
        self._judge(made, [check for check in rules if not hasattr(check, "sees_parts")], at, before)
        _set(made, parts)
        self._judge(made, [check for check in rules if hasattr(check, "sees_parts")], at, before)
        return made

    def _judge(self, made: Any, rules: Iterable[Rule], at: Location, before: int) -> None:
        """Add what the rules refuse; one that needs an attribute that is not there is skipped."""
        for check in rules:
            try:
                for refused in check(made) or ():
                    self.refusals.append(refused.below(at))
            except Refused as refused:
                self.refusals.append(refused.below(at))
            except AttributeError:
                if len(self.refusals) == before:
                    raise


def _set(made: Any, values: Mapping[str, Any]) -> None:
    for attribute, value in values.items():
        if value is not _BAD:
            object.__setattr__(made, attribute, value)


def _keys_form(kind: type) -> str:
    return f"an object with the keys {', '.join(keys_of(kind))}"


def _allowed(form: Form) -> str:
    """What is allowed for a missing key."""
    if isinstance(form, Kind):
        return form.form
    if isinstance(form, type):
        return _keys_form(form)
    if isinstance(form, Chosen):
        return _allowed(form.forms[0])
    if isinstance(form, Named):
        return f"an object whose keys are each {form.name.form}"
    return _allowed(form.item) if form.alone else f"a list of {form.low} to {form.high} entries"


# --- described --------------------------------------------------------------------------------------------------------


def json_schema(*forms: Form) -> dict[str, Any]:
    """The JSON Schema of a document that has one of these forms."""
    classes: dict[str, Any] = {}
    found = [_schema(form, classes) for form in forms]
    root = found[0] if len(found) == 1 else {"anyOf": found}
    if "$ref" in root:
        root = classes.pop(_title(cast(type, forms[0])))
    return {**root, "$defs": dict(sorted(classes.items()))}


def _schema(form: Form, classes: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a form; those of the classes in it are added to ``classes``."""
    if isinstance(form, Kind):
        return {"description": form.form, **form.schema}
    if isinstance(form, Chosen):
        found = [_schema(item, classes) for item in form.forms]
        return {"anyOf": found} if len(found) > 1 else found[0]
    if isinstance(form, Listed):
        item = _schema(form.item, classes)
        array = {"type": "array", "items": item, "minItems": form.low, "maxItems": form.high}
        array |= {"uniqueItems": True} if form.unique else {}
        return {"anyOf": [item, array]} if form.alone else array
    if isinstance(form, Named):
        named = {"propertyNames": dict(form.name.schema), "additionalProperties": _schema(form.item, classes)}
        return {"type": "object", **named}
    title = _title(form)
    if title not in classes:
        classes[title] = {}
        keys = keys_of(form)
        lacking: Collection[str] = getattr(form, "LACKING", ())
        required = [name for name, key in keys.items() if key.is_required]
        classes[title] = {
            "title": title,
            "description": (form.__doc__ or "").partition("\n\n")[0].replace("\n    ", " "),
            "type": "object",
            "properties": {name: _property(key, classes) for name, key in keys.items() if name not in lacking},
            **({"required": required} if required else {}),
            "additionalProperties": False,
            **getattr(form, "SCHEMA", {}),
        }
    return {"$ref": f"#/$defs/{title}"}


def _property(key: Key, classes: dict[str, Any]) -> dict[str, Any]:
    schema = _schema(key.form, classes)
    forms = [item["description"] for item in (schema, *schema.get("anyOf", ())) if "description" in item]
    shown = key.shown
    if shown is None and isinstance(key.form, Kind) and key.default not in (MISSING, None):
        given = written_value(key.form, key.default)
        with contextlib.suppress(ValueError):
            key.form.parse(given)
            shown = given
    more = {} if shown is None else {"default": float(shown) if isinstance(shown, Decimal) else shown}
    return {**schema, "description": ": ".join((key.meaning, *forms[:1])), **more}


def _title(kind: type) -> str:
    return kind.__name__.removeprefix("Raw")


def quantity_and_schema(kind: type, key: str) -> tuple[Quantity | None, dict[str, Any]]:
    """What one value of a key is a quantity of, and its JSON Schema; any, where it may be an object."""
    form = keys_of(kind)[key].form
    form = form.item if isinstance(form, Listed) else form
    first = form.forms[0] if isinstance(form, Chosen) else form
    return first.quantity if isinstance(first, Kind) else None, _schema(form, {}) if isinstance(form, Kind) else {}


# --- written ----------------------------------------------------------------------------------------------------------


def written(kind: type, value: Any, always: Iterable[str] = ()) -> dict[str, Any]:
    """The object of a file, with the keys of ``kind``, from which the same ``value``, a dataclass, is read.

    Default values are left out, except for the attributes in ``always``.
    """
    keys = keys_of(kind)
    defaults = {key.attribute: key.default for key in keys.values()}
    defaults |= {item.name: item.default for item in fields(value)}
    kept = {*always, *(key.attribute for key in keys.values() if key.is_required)}
    found = {
        name: written_value(key.form, given)
        for name, key in keys.items()
        if hasattr(value, key.attribute)
        and ((given := getattr(value, key.attribute)) != defaults[key.attribute] or key.attribute in kept)
    }
    return {name: item for name, item in found.items() if item is not None}


def written_value(form: Form, value: Any) -> Any:
    if isinstance(form, type):
        return None if value is None else written(form, value)
    if isinstance(form, Listed):
        return [written_value(form.item, item) for item in value] if isinstance(value, tuple) else value
    if isinstance(form, Named):
        return {name: written_value(form.item, item) for name, item in value.items()}
    if form.write is not None:
        return form.write(value)
    if isinstance(form, Chosen):
        # The class that it is of, or the kind of which it is where it is of none.
        chosen = [item for item in form.forms if not isinstance(item, type) or isinstance(value, item)]
        return None if value is None else written_value(chosen[-1], value)
    return [*value] if isinstance(value, tuple) else value
