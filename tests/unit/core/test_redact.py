"""Secrets, taken out of texts, bytes and values."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bartack.core.redact import Redactor, is_secret_name

HARD = 'p/ss+w\u00f6rd="1" %&\n?'


@pytest.mark.parametrize(
    "name", ["TOKEN", "GITHUB_TOKEN", "api_key", "ANTHROPIC_API_KEY", "ApiKey", "Client-Secret", "dbPassword"]
)
def test_knows_secrets_by_the_end_of_their_name(name: str) -> None:
    assert is_secret_name(name)
    assert Redactor({name: "value-of-it"}).redact_text("<value-of-it>") == f"<$env:{name}>"


@pytest.mark.parametrize("name", ["PATH", "TOKENS", "KEYBOARD", "SECRET_ID", "PASSWORD_FILE", "TOKEN\n", ""])
def test_leaves_other_variables_alone(name: str) -> None:
    assert not is_secret_name(name)
    assert Redactor({name: "value-of-it"}).redact_text("value-of-it") == "value-of-it"


@pytest.mark.parametrize("value", ["", "1", "true", "12345"])
def test_leaves_short_values_alone(value: str) -> None:
    redactor = Redactor({"A_TOKEN": value})

    encoded = base64.b64encode(value.encode()).decode()

    assert redactor.redact_text(f"a{value}b {encoded} 12345 true") == f"a{value}b {encoded} 12345 true"
    assert redactor.redact_bytes(f"a{value}b".encode()) == f"a{value}b".encode()


def test_replaces_every_occurrence() -> None:
    redactor = Redactor({"A_TOKEN": "aaaaaa", "B_KEY": "bbbbbb"})

    assert (
        redactor.redact_text("aaaaaa,bbbbbb;aaaaaaaaaaaa")
        == "$env:A_TOKEN,$env:B_KEY;$env:A_TOKEN$env:A_TOKEN"
    )


def test_replaces_the_longest_secret_first() -> None:
    redactor = Redactor({"A_TOKEN": "secret", "B_TOKEN": "secret-and-more", "C_TOKEN": "x-secret"})

    assert redactor.redact_text("secret-and-more secret x-secret") == "$env:B_TOKEN $env:A_TOKEN $env:C_TOKEN"


def test_one_value_of_two_names_gets_the_first_of_them_in_any_order() -> None:
    for names in (("A_KEY", "B_KEY"), ("B_KEY", "A_KEY")):
        assert Redactor(dict.fromkeys(names, "same-value")).redact_text("same-value") == "$env:A_KEY"


@pytest.mark.parametrize(
    "form",
    [
        HARD,
        json.dumps(HARD)[1:-1],
        json.dumps(HARD, ensure_ascii=False)[1:-1],
        quote(HARD, safe=""),
        quote(HARD),
        quote_plus(HARD),
        quote(HARD, safe="")
        .replace("%2F", "%2f")
        .replace("%2B", "%2b")
        .replace("%C3%B6", "%c3%b6")
        .replace("%3D", "%3d")
        .replace("%0A", "%0a")
        .replace("%3F", "%3f"),
        base64.b64encode(HARD.encode()).decode(),
        base64.urlsafe_b64encode(HARD.encode()).decode(),
        base64.b64encode(HARD.encode()).decode().rstrip("="),
    ],
)
def test_finds_secrets_inside_other_notations(form: str) -> None:
    redactor = Redactor({"DB_PASSWORD": HARD})

    assert redactor.redact_text(f"[{form}]") == "[$env:DB_PASSWORD]"
    assert redactor.redact_bytes(f"[{form}]".encode()) == b"[$env:DB_PASSWORD]"


@given(
    secret=st.binary(min_size=9, max_size=30).map(lambda raw: raw.hex()),
    before=st.binary(max_size=8),
    after=st.binary(max_size=8),
)
@settings(max_examples=100, deadline=None)
def test_finds_secrets_encoded_together_with_other_text(secret: str, before: bytes, after: bytes) -> None:
    raw = before + secret.encode() + after
    redactor = Redactor({"A_TOKEN": secret})

    for encoded in (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()):
        found = redactor.redact_text(encoded)

        assert "$env:A_TOKEN" in found
        assert len(found) - len("$env:A_TOKEN") <= len(encoded) - len(secret)


def test_finds_a_value_without_the_white_space_around_it() -> None:
    redactor = Redactor({"A_TOKEN": " from-a-file\n"})

    assert redactor.redact_text("Bearer from-a-file.") == "Bearer $env:A_TOKEN."
    assert redactor.redact_text("[ from-a-file\n]") == "[$env:A_TOKEN]"


def test_finds_secrets_that_are_not_utf8() -> None:
    redactor = Redactor({"A_TOKEN": b"secret\xff\xfe".decode("utf-8", "surrogateescape")})

    assert redactor.redact_bytes(b"\x00secret\xff\xfe\x80") == b"\x00$env:A_TOKEN\x80"


def test_gives_back_the_same_object_when_there_is_nothing_to_do() -> None:
    text = "nothing of interest"
    data = b"nothing of interest"

    for redactor in (Redactor({}), Redactor({"A_TOKEN": "secret"})):
        assert redactor.redact_text(text) is text
        assert redactor.redact_bytes(data) is data


def test_redacts_values_and_keys_at_any_depth() -> None:
    redactor = Redactor({"A_TOKEN": "s3cret"})
    value = {"a": ["x s3cret", ("s3cret", 1.5, None)], "s3cret!": {"b": b"s3cret"}}

    assert redactor.redact_value(value) == {
        "a": ["x $env:A_TOKEN", ["$env:A_TOKEN", 1.5, None]],
        "$env:A_TOKEN!": {"b": b"$env:A_TOKEN"},
    }
    assert value["a"] == ["x s3cret", ("s3cret", 1.5, None)]


def test_hides_whatever_stands_under_a_secret_name() -> None:
    value = {
        "api_key": "unknown-before",
        "Password": ["a", "b"],
        "refreshToken": 1234,
        "nested": [{"client_secret": {"x": 1}}],
    }

    assert Redactor({}).redact_value(value) == {
        "api_key": "***",
        "Password": "***",
        "refreshToken": "***",
        "nested": [{"client_secret": "***"}],
    }


def test_shows_what_cannot_be_a_secret_under_a_secret_name() -> None:
    step_key = "ik:" + "0f" * 32
    value = {"password": None, "has_token": True, "step_key": step_key, "key": "name", "tokens": 12}

    assert Redactor({}).redact_value(value) == value


def test_redacts_also_what_stands_under_the_bare_name_key() -> None:
    assert Redactor({"A_TOKEN": "s3cret"}).redact_value({"key": "s3cret"}) == {"key": "$env:A_TOKEN"}


@given(value=st.text(min_size=6, max_size=12), before=st.text(max_size=8), after=st.text(max_size=8))
@settings(max_examples=200, deadline=None)
def test_no_text_keeps_a_secret(value: str, before: str, after: str) -> None:
    assume(value not in "$env:A_TOKEN")
    redactor = Redactor({"A_TOKEN": value})

    found = redactor.redact_text(before + value + after)

    assert value not in found.replace("$env:A_TOKEN", "\x00\x01\x02")
