"""The meaning of a command's result."""

from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import pq

from ingest.sources.postgres.postgres_connection import run_command


def test_an_error_raised_by_libpq_itself_is_a_lost_connection() -> None:
    result = pq.PGconn.connect_start(b"host=/").make_empty_result(pq.ExecStatus.FATAL_ERROR)
    answers = iter([result, None])
    pgconn = SimpleNamespace(send_query=lambda _: None, is_busy=lambda: False, get_result=lambda: next(answers))
    connection: Any = SimpleNamespace(pgconn=pgconn)
    with pytest.raises(psycopg.OperationalError):
        run_command(connection, "IDENTIFY_SYSTEM")
