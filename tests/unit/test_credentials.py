"""The settings that the adapter adds to those of a profile."""

from typing import Any

import pytest
from dbt.adapters.spark.connections import SparkConnectionMethod

from dbt.adapters.tidemark.connections import TidemarkCredentials, branch_name


def settings_of(**settings: Any) -> dict[str, Any]:
    credentials = TidemarkCredentials(
        method=SparkConnectionMethod.SESSION, host="localhost", schema="core", server_side_parameters=settings
    )
    return credentials.server_side_parameters


def test_a_profile_without_settings_is_staged_on_the_branch_of_the_invocation() -> None:
    assert settings_of()["spark.wap.branch"] == branch_name()
    assert branch_name().startswith("run_")


def test_settings_that_results_depend_on_are_not_those_of_the_profile() -> None:
    settings = settings_of(**{"spark.sql.session.timeZone": "Asia/Tokyo", "spark.wap.branch": "main"})
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings["spark.sql.variable.substitute"] == "false"
    assert settings["spark.wap.branch"] == branch_name()


@pytest.mark.parametrize(("settings", "expected"), [({}, "true"), ({"spark.sql.ansi.enabled": False}, "False")])
def test_ansi_mode_is_on_unless_the_profile_switches_it_off(settings: dict[str, Any], expected: str) -> None:
    assert settings_of(**settings)["spark.sql.ansi.enabled"] == expected
