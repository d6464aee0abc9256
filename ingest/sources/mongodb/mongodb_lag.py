"""The state of a MongoDB source's log: how far its stored position is behind the deployment."""

from pymongo.errors import PyMongoError

from ingest.common.errors import Failure
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource
from ingest.positions.position import Position
from ingest.sources.interface.source_lag import SourceLag
from ingest.sources.mongodb import mongodb_connection, mongodb_server


def read_lag(source: MongoSource, settings: JobSettings, position: Position) -> SourceLag:
    """The lag: the seconds between the time of the deployment's newest operation and a position. Raises Failure.

    An idle deployment writes a no-op every ten seconds, so a running stream stays close behind.
    """
    try:
        with mongodb_connection.connect(source.uri.get_secret_value(), settings.connect_timeout_seconds) as client:
            newest = mongodb_server.operation_time(client)
    except PyMongoError as error:
        what = f"MongoDB rejected a command ({mongodb_connection.describe_error(error)})"
        raise Failure(what, f"source {source.name}") from None
    return SourceLag(lag_seconds=float(max(0, (newest >> 32) - (position.position >> 32))))
