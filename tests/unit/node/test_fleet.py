"""What a node of a database gives to its hubs."""

from __future__ import annotations

import pytest

from bartack.depot.elsewhere import without_database

NODE = {
    "PATH": "/bin",
    "PGPASSWORD": "x",
    "BARTACK_ON": "service:team",
    "BARTACK_DEPOT_BLOBS": "s3://team/runs",
    "BARTACK_STATE_DIR": "/state",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_REGION": "x",
}


@pytest.mark.requirement("fleet-credentials")
def test_hubs_get_nothing_that_names_or_opens_the_database_or_its_bucket() -> None:
    assert sorted(without_database(NODE, has_bucket=True)) == ["BARTACK_STATE_DIR", "PATH"]


def test_variables_of_aws_are_those_of_programs_where_no_bucket_is_set() -> None:
    assert "AWS_SECRET_ACCESS_KEY" in without_database(NODE)


@pytest.mark.requirement("fleet-credentials")
@pytest.mark.parametrize(
    ("passed", "found"),
    [
        (["AWS_REGION"], ["AWS_REGION"]),
        (["AWS_*_KEY*"], ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]),
        (["PGPASSWORD", "BARTACK_ON", "*"], ["AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_SECRET_ACCESS_KEY"]),
    ],
)
def test_the_user_of_a_node_may_pass_variables_of_its_bucket_but_none_of_its_database(
    passed: list[str], found: list[str]
) -> None:
    names = sorted(without_database(NODE, has_bucket=True, passed=passed))

    assert names == [*found, "BARTACK_STATE_DIR", "PATH"]
