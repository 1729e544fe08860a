"""Patchwork types: what they accept, how they read, arguments by type, what two of them have in common."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.language import check, schema, tree
from bartack.language.checking._types import (
    ANY,
    ARRAY,
    BOOL,
    BUILT_IN,
    INT,
    MAILBOX,
    NULL,
    NUMBER,
    OBJECT,
    RESULT,
    STRING,
    ArrayOf,
    Field,
    LiteralOf,
    MapOf,
    Named,
    Record,
    Type,
    Union,
    accepts,
    converted,
    describe,
    from_argument,
    overlap,
    parse_number,
)
from bartack.language.syntax._near import OWN_TYPES


def written(text: str, declared: str = "") -> Type:
    """The type that is written as `text`."""
    program = f"{declared}\nfun f(x: {text}) {{ return x }}\n"
    checked = check(lambda _path: program, "main.pw")
    assert not [one for one in checked.diagnostics if one.severity == "error"], checked.diagnostics
    module = checked.program.entry
    parameter = next(tree.find(module.syntax, tree.Parameter))
    assert parameter.type is not None
    return module.types[parameter.type]


class Result:
    """Stands for the result of a command."""

    def __init__(self, text: str) -> None:
        self.text = text


def kind_of(value: object) -> str:
    return "result" if isinstance(value, Result) else "mailbox"


def text_of(value: object) -> str:
    assert isinstance(value, Result)
    return value.text


TREE = "type Tree = { value: int, left?: Tree, right?: Tree }"


ACCEPTED: list[tuple[str, list[object], list[object]]] = [
    ("string", ["", "x"], [1, None, True, [], {}]),
    ("number", [1, 1.5, -2], ["1", True, None]),
    ("float", [1, 1.5], ["1"]),
    ("int", [1, 2.0, -3], [1.5, True, "1"]),
    ("bool", [True, False], [0, 1, "true"]),
    ("boolean", [True], [1]),
    ("null", [None], [0, "", False]),
    ("void", [None], [{}]),
    ("any", [None, 1, "x", [], {}], []),
    ("object", [{}, {"a": 1}], [[], "x", None]),
    ("object<int>", [{}, {"a": 1}], [{"a": "x"}]),
    ("array", [[], [1, "x"]], [{}, "x", None]),
    ("array<int>", [[], [1]], [["x"], 1]),
    ("[int]", [[1, 2]], [[1, None]]),
    ('"a"', ["a"], ["b", 1]),
    ("1", [1, 1.0], [True, "1", 2]),
    ("true", [True], [1, False]),
    ('"a" | "b" | null', ["a", "b", None], ["c", ""]),
    ("int | string", [1, "x"], [1.5, None]),
    (
        "{a: int, b?: string}",
        [{"a": 1}, {"a": 1, "b": None}, {"a": 1, "more": []}],
        [{}, {"a": None}, []],
    ),
    ("{a: int | null}", [{"a": None}], [{}]),
]


@pytest.mark.parametrize(("text", "good", "bad"), ACCEPTED)
def test_a_type_accepts_its_values_and_no_others(text: str, good: list[object], bad: list[object]) -> None:
    kind = written(text)

    assert [value for value in good if accepts(kind, value) is not None] == []
    assert [value for value in bad if accepts(kind, value) is None] == []


@pytest.mark.parametrize(
    ("text", "value", "fault"),
    [
        ("int", "x", 'expected int, found string "x"'),
        ("[{name: string}]", [{"name": "a"}, {"name": 2}], "expected string, found number 2 at $[1].name"),
        ("{items: [int]}", {"items": [1, None]}, "expected int, found null at $.items[1]"),
        ("{a: int}", {}, "expected int, found nothing at $.a"),
        ('{"a b": int}', {"a b": True}, 'expected int, found true at $["a b"]'),
        ("{a: int} | null", {"a": []}, "expected int, found array of 0 at $.a"),
        ('"a" | "b"', "c", 'expected "a" | "b", found string "c"'),
        ("int | string", {}, "expected int | string, found object"),
        ("int", "x" * 100, f'expected int, found string "{"x" * 39}…"'),
    ],
)
def test_the_first_fault_is_named_with_its_path(text: str, value: object, fault: str) -> None:
    found = accepts(written(text), value)

    assert found is not None
    assert found.text == fault


def test_recursive_types_follow_the_value() -> None:
    tree = written("Tree", TREE)

    assert accepts(tree, {"value": 1, "left": {"value": 2, "right": {"value": 3}}}) is None
    fault = accepts(tree, {"value": 1, "left": {"value": 2, "right": {"value": "x"}}})
    assert fault is not None
    assert fault.path == "$.left.right.value"


def test_values_that_contain_themselves_are_too_deep() -> None:
    endless: list[object] = []
    endless.append(endless)

    fault = accepts(written("L", "type L = [L]"), endless)

    assert fault is not None
    assert fault.too_deep
    assert accepts(written("[int]"), endless) is not None


def test_nested_unions_take_no_exponential_time() -> None:
    kind = written("T", "type T = {a: T} | {a: T, b?: int} | null")
    value: object = 1
    for _ in range(60):
        value = {"a": value}

    assert accepts(kind, value) is not None


def test_values_that_are_nested_too_deeply_are_refused() -> None:
    value: object = None
    for _ in range(100_000):
        value = [value]

    fault = accepts(written("L | null", "type L = [L | null]"), value)

    assert fault is not None
    assert "too deeply" in fault.found


def test_a_result_counts_as_text_and_becomes_text() -> None:
    result = Result("out")
    value = {"a": [result, "x"], "b": 1}
    kind = written("{a: [string], b: int}")

    assert accepts(kind, value, kind_of) is None
    assert converted(kind, value, kind_of, text_of) == {"a": ["out", "x"], "b": 1}
    assert value["a"] == [result, "x"]
    assert converted(written("int | string"), result, kind_of, text_of) == "out"
    assert accepts(written("int"), result, kind_of) is not None


def test_what_needs_no_conversion_stays_the_same_value() -> None:
    value = {"a": ["x"]}

    assert converted(written("{a: [string]}"), value, kind_of, text_of) is value


# Schema


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("string", {"type": "string"}),
        ("float", {"type": "number"}),
        ("int", {"type": "integer"}),
        ("boolean", {"type": "boolean"}),
        ("void", {"type": "null"}),
        ("any", {}),
        ("object", {"type": "object"}),
        ("object<int>", {"type": "object", "additionalProperties": {"type": "integer"}}),
        ("array", {"type": "array"}),
        ("[string]", {"type": "array", "items": {"type": "string"}}),
        ('"a" | 1 | true | null', {"enum": ["a", 1, True, None]}),
        ("1.5", {"enum": [1.5]}),
        ("int | null", {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (
            "{b: int, a?: string}",
            {
                "type": "object",
                "properties": {
                    "b": {"type": "integer"},
                    "a": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["b"],
                "additionalProperties": False,
            },
        ),
        (
            '{a?: "x" | "y", b?: int | null, c?: any}',
            {
                "type": "object",
                "properties": {
                    "a": {"enum": ["x", "y", None]},
                    "b": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "c": {},
                },
                "required": [],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_the_schema_of_a_type(text: str, expected: object) -> None:
    assert schema(written(text)) == expected


def test_the_schema_that_prompts_are_compared_by_is_the_one_in_older_journals() -> None:
    made = schema(written('{a?: string, b: {c?: "x"}}'), nullable=False)

    assert made["properties"] == {
        "a": {"type": "string"},
        "b": {
            "type": "object",
            "properties": {"c": {"enum": ["x"]}},
            "required": [],
            "additionalProperties": False,
        },
    }


def test_fields_keep_the_order_of_the_source() -> None:
    made = schema(written("{z: int, a: int, m: int}"))["properties"]

    assert isinstance(made, dict)
    assert list(made) == ["z", "a", "m"]


def test_declared_types_are_put_in_place_with_their_description() -> None:
    declared = "# How sure it is.\n# @color red\ntype Sure = int"

    made = schema(written("{sure: Sure}", declared))

    assert made["properties"] == {"sure": {"description": "How sure it is.", "type": "integer"}}
    assert "$defs" not in made


def test_recursive_types_go_through_definitions() -> None:
    assert schema(written("Tree", TREE)) == {
        "$ref": "#/$defs/Tree",
        "$defs": {
            "Tree": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "left": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]},
                    "right": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]},
                },
                "required": ["value"],
                "additionalProperties": False,
            }
        },
    }


def test_two_recursive_types_of_one_name_stay_apart() -> None:
    one, two = Named("T"), Named("T")
    one.definition, two.definition = ArrayOf(one), MapOf(two)

    made = schema(Union((one, two)))

    assert made["anyOf"] == [{"$ref": "#/$defs/T"}, {"$ref": "#/$defs/T_2"}]


def test_a_schema_that_would_grow_without_end_shares_its_parts() -> None:
    declared = "\n".join(f"type T{i} = {{a: T{i + 1}, b: T{i + 1}}}" for i in range(40)) + "\ntype T40 = int"

    made = schema(written("T0", declared))

    assert isinstance(made["$defs"], dict)
    assert len(made["$defs"]) == 41


# Arguments


@pytest.mark.parametrize(
    ("text", "argument", "value"),
    [
        ("string", "5", "5"),
        ("int", " 5 ", 5),
        ("number", "-1.5e1", -15.0),
        ("int", "9007199254740993", 9007199254740992),
        ("[int]", "[9007199254740993]", [9007199254740992]),
        ("bool", "YES", True),
        ("bool", "0", False),
        ('"a" | 1 | true', "1", 1.0),
        ('"a" | 1 | true', "true", True),
        ("[int]", "[1, 2]", [1, 2]),
        ("{a: int}", '{"a": 1}', {"a": 1}),
        ("int | null", "null", None),
        ("string | null", "hello", "hello"),
        ("any", "[1]", [1]),
        ("any", "hello", "hello"),
    ],
)
def test_an_argument_is_read_by_its_type(text: str, argument: str, value: object) -> None:
    read = from_argument(written(text), argument)

    assert read.fault is None
    assert read.value == value
    assert type(read.value) is type(value)


def test_an_argument_without_type_is_text() -> None:
    assert from_argument(None, "5").value == "5"


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("int", "1.5"),
        ("int", "x"),
        ("number", "NaN"),
        ("number", "1e999"),
        ("number", "1_000"),
        ("number", "٣"),
        ("bool", "maybe"),
        ('"a" | "b"', "c"),
        ("[int]", "1, 2"),
        ("[int]", '["x"]'),
        ("object", "[" * 100_000),
        ("[number]", "[NaN]"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(text: str, argument: str) -> None:
    assert from_argument(written(text), argument).fault is not None


@given(st.text())
def test_any_text_is_a_number_or_not(text: str) -> None:
    found = parse_number(text)

    assert found is None or float(text) == found


# What two types have in common


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (STRING, INT, False),
        (STRING, ANY, True),
        (NUMBER, INT, True),
        (INT, LiteralOf(1.5), False),
        (INT, LiteralOf(2.0), True),
        (BOOL, LiteralOf(value=True), True),
        (LiteralOf(1.0), LiteralOf(value=True), False),
        (LiteralOf("a"), Union((LiteralOf("b"), LiteralOf("c"))), False),
        (STRING, RESULT, True),
        (RESULT, OBJECT, True),
        (MAILBOX, STRING, False),
        (ARRAY, OBJECT, False),
        (ArrayOf(INT), ArrayOf(STRING), True),
        (NULL, Union((INT, NULL)), True),
        (Record((Field("a", INT),)), Record((Field("a", STRING),)), False),
        (Record((Field("a", INT, optional=True),)), Record((Field("a", STRING),)), True),
        (Record((Field("a", INT),)), Record((Field("b", STRING),)), True),
        (Record((Field("a", INT),), exact=True), Record((Field("b", STRING),)), False),
        (Record((Field("a", INT),)), MapOf(STRING), False),
    ],
)
def test_types_with_a_common_value_overlap(left: Type, right: Type, *, common: bool) -> None:
    assert overlap(left, right) is common
    assert overlap(right, left) is common


def test_recursive_types_can_be_compared() -> None:
    tree = written("Tree", TREE)
    other = written("Tree", TREE.replace("value: int", "value: string"))

    assert overlap(tree, tree)
    assert not overlap(tree, other)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
SIMPLE: st.SearchStrategy[Type] = st.sampled_from(
    [ANY, STRING, NUMBER, INT, BOOL, NULL, LiteralOf("a"), LiteralOf(1.0)]
)


def _record(kind: Type, *, optional: bool) -> Type:
    return Record((Field("a", kind, optional),))


def _either(one: Type, two: Type) -> Type:
    return Union((one, two))


def _containers(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return st.one_of(
        st.builds(ArrayOf, inner),
        st.builds(MapOf, inner),
        st.builds(_record, inner, optional=st.booleans()),
        st.builds(_either, inner, inner),
    )


TYPES: st.SearchStrategy[Type] = st.recursive(SIMPLE, _containers, max_leaves=4)


@given(TYPES, TYPES, VALUES)
def test_types_that_accept_the_same_value_overlap(left: Type, right: Type, value: object) -> None:
    if accepts(left, value) is None and accepts(right, value) is None:
        assert overlap(left, right)


@given(TYPES)
def test_every_type_can_be_written_down(kind: Type) -> None:
    assert describe(kind)
    assert isinstance(schema(kind), dict)


def test_the_parser_knows_the_names_of_all_built_in_types() -> None:
    assert set(BUILT_IN) == OWN_TYPES
