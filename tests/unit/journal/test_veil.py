from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.core.redact import SecretRule
from bartack.errors import SecretMissingError
from bartack.journal.veil import Veil, find_secrets

TOKEN = 'tok"en_Ab3/+x Yz\\90é'  # noqa: S105 - made up
VEIL = Veil(find_secrets({"MY_TOKEN": TOKEN, "OTHER": "not a secret"}))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PIECES = st.lists(
    st.sampled_from([TOKEN, "$env:MY_TOKEN", "\\u0024env:MY_TOKE\\u004e", "\\", '"', "n", TOKEN[:4]])
    | st.text(max_size=4)
).map("".join)


def spellings(secret: str) -> list[str]:
    raw = secret.encode()
    return [
        secret,
        json.dumps(secret),
        json.dumps(secret, ensure_ascii=False),
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        *(base64.b64encode(b"u" * before + raw + b"after").decode() for before in range(5)),
    ]


@pytest.mark.requirement("secrets-are-not-stored")
@pytest.mark.parametrize("spelling", spellings(TOKEN))
def test_a_secret_is_hidden_however_it_is_written_and_given_back(spelling: str) -> None:
    data = msgspec.json.encode({"text": f"before {spelling} after", spelling: [1, spelling]})

    hidden = VEIL.hide(data)

    assert VEIL.restore(hidden) == data
    shown = json.dumps(msgspec.json.decode(hidden))
    assert "$env:MY_TOKEN" in shown
    assert spelling not in shown
    assert TOKEN[3:9] not in shown


@given(JSON)
def test_what_has_no_secret_in_it_is_stored_as_it_is(value: object) -> None:
    data = msgspec.json.encode(value)

    assert VEIL.hide(data) == data
    assert VEIL.restore(data) == data


@given(PIECES, PIECES)
def test_every_value_comes_back_whatever_it_imitates(key: str, text: str) -> None:
    data = msgspec.json.encode({key: [text, 1.5, 123456]})

    hidden = VEIL.hide(data)

    assert TOKEN not in json.dumps(msgspec.json.decode(hidden), ensure_ascii=False)
    assert msgspec.json.decode(VEIL.restore(hidden)) == msgspec.json.decode(data)
    assert TOKEN not in VEIL.hide_text(text)


@pytest.mark.requirement("secrets-cannot-be-conjured")
def test_a_marker_in_what_others_wrote_is_not_given_a_secret() -> None:
    forged = rb'{"a":"\u0024env:MY_TOKE\u004e","b":"\\u0024env:MY_TOKE\\u004e"}'

    restored = VEIL.restore(VEIL.hide(forged))

    assert msgspec.json.decode(restored) == msgspec.json.decode(forged)
    assert msgspec.json.decode(restored)["a"] == "$env:MY_TOKEN"


@pytest.mark.requirement("missing-secret-is-told")
def test_a_secret_that_is_not_set_is_named() -> None:
    hidden = VEIL.hide(msgspec.json.encode(TOKEN))

    with pytest.raises(SecretMissingError, match="MY_TOKEN"):
        Veil(find_secrets({})).restore(hidden)


def test_a_new_value_takes_the_place_of_the_old_one() -> None:
    hidden = VEIL.hide(msgspec.json.encode(["Bearer " + TOKEN, base64.b64encode(TOKEN.encode()).decode()]))
    veil = Veil(find_secrets({"MY_TOKEN": "new"}))

    assert msgspec.json.decode(veil.restore(hidden)) == ["Bearer new", base64.b64encode(b"new").decode()]
    assert veil.given_back == {"MY_TOKEN"}


@pytest.mark.requirement("ordinary-values-are-not-secrets")
@pytest.mark.parametrize("value", ["", "1", "true", "12345678", "short", "Enabled", "localhost", "work"])
def test_ordinary_values_are_left_alone(value: str) -> None:
    assert find_secrets({"A_KEY": value}, places=["/srv/workshop"]).hidden == ()


def test_the_project_s_path_is_not_a_secret() -> None:
    assert find_secrets({"A_KEY": "workshop"}, places=["/srv/workshop/x"]).hidden == ()
    assert find_secrets({"A_KEY": "workshop"}).hidden == ("A_KEY",)


def test_names_are_secret_as_the_settings_say() -> None:
    environ = {"A_KEY": "abcdefgh", "DSN": "ijklmnop"}

    assert find_secrets(environ, SecretRule(("DSN",), ("A_KEY",))).hidden == ("DSN",)


def test_the_lines_of_a_long_key_are_hidden_one_by_one() -> None:
    key = "-----BEGIN KEY-----\n" + "A" * 64 + "\n" + "B" * 64 + "\n-----END KEY-----\n"
    veil = Veil(find_secrets({"SSH_KEY": key}))

    data = msgspec.json.encode("B" * 64)

    assert b"BBBB" not in veil.hide(data)
    assert veil.restore(veil.hide(data)) == data


def test_a_blob_that_is_not_text_is_left_as_it_is() -> None:
    data = b'"any \xff ' + TOKEN.encode()[:3] + b'\\u0024"'

    assert VEIL.hide(data) == data
