"""The settings that the adapter adds to those of a profile."""

from typing import Any

import pytest
from dbt.adapters.spark.connections import SparkConnectionMethod
from dbt_common.exceptions import DbtRuntimeError
from dbt_common.invocation import reset_invocation_id

from dbt.adapters.tidemark.connections import TidemarkCredentials, branch_name


def settings_of(**settings: Any) -> dict[str, Any]:
    credentials = TidemarkCredentials(
        method=SparkConnectionMethod.SESSION, host="localhost", schema="core", server_side_parameters=settings
    )
    return credentials.server_side_parameters


def test_without_settings_a_run_has_the_branch_of_its_invocation() -> None:
    settings = settings_of()
    assert settings["spark.wap.branch"] == branch_name()
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings["spark.sql.variable.substitute"] == "false"
    reset_invocation_id()
    assert settings_of()["spark.wap.branch"] == branch_name() != settings["spark.wap.branch"]


@pytest.mark.parametrize(
    ("name", "value", "is_refused"),
    [
        ("spark.sql.session.timeZone", "UTC", False),
        ("spark.sql.session.timeZone", "Asia/Tokyo", True),
        ("spark.sql.variable.substitute", False, False),
        ("spark.sql.variable.substitute", "true", True),
    ],
)
def test_other_values_of_required_settings_are_refused(name: str, value: object, is_refused: bool) -> None:
    if not is_refused:
        assert settings_of(**{name: value})[name] == str(value)
        return
    with pytest.raises(DbtRuntimeError, match=f"{name} is {value}, and Tidemark's models need .*. Remove the setting"):
        settings_of(**{name: value})


@pytest.mark.parametrize(("settings", "expected"), [({}, "true"), ({"spark.sql.ansi.enabled": False}, "False")])
def test_ansi_mode_is_on_unless_the_profile_switches_it_off(settings: dict[str, Any], expected: str) -> None:
    assert settings_of(**settings)["spark.sql.ansi.enabled"] == expected
