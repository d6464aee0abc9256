from typing import Any

import pytest
from pydantic import SecretStr

from ingest.common.errors import UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource
from ingest.sources import source_kinds


def test_the_number_of_writers_of_a_mongodb_source_can_not_be_changed() -> None:
    source = MongoSource(name="docs", uri=SecretStr("mongodb://localhost/?replicaSet=rs"), collections=("shop.*",))
    no_lake: Any = None
    with pytest.raises(UsageError, match="a MongoDB source has one writer: source docs"):
        source_kinds.set_writers(no_lake, source, JobSettings())
