"""When a stream writer closes its open batch and commits it. Pure."""

from dataclasses import dataclass

from ingest.config.job_settings import JobSettings

# A batch is committed on request if it is at least this share of `commit_interval_seconds` old.
REQUESTED_SHARE = 0.1


@dataclass(frozen=True)
class FlushState:
    """What the decision depends on.

    size: bytes of the open batch as Arrow, 0 without events. age: seconds since its first event. has_advanced: it has a
    position past that of the batch before. crosses_target: with it the writer passes the position that `run` waits for.
    is_position_requested: the source has asked for a status. is_commit_requested: a run of the models begins.
    position_age: seconds since the last position was queued to be stored. is_committer_idle: no other batch is being
    committed or waits for it.
    """

    size: int
    age: float
    has_advanced: bool
    crosses_target: bool
    is_position_requested: bool
    is_commit_requested: bool
    position_age: float
    is_committer_idle: bool


def should_flush(state: FlushState, settings: JobSettings) -> bool:
    """Whether to commit the open batch now.

    A batch is bounded by bytes and time, never by a transaction (rule T4). Only a full batch is queued behind another
    one: a smaller one would only wait there, so it grows until the committer is idle. A requested commit is of a batch
    of at least `REQUESTED_SHARE` of the interval; a younger one waits for the whole interval, so that a long interval
    still means few commits. Without events the position alone is stored every `idle_position_seconds`, so that an idle
    writer does not hold back its source's position (rule W5).
    """
    if state.size >= settings.commit_max_bytes:
        return True
    if not state.is_committer_idle:
        return False
    if state.size:
        share = REQUESTED_SHARE if state.is_commit_requested else 1.0
        return state.crosses_target or state.age >= share * settings.commit_interval_seconds
    is_due = state.is_position_requested or state.position_age >= settings.idle_position_seconds
    return state.has_advanced and (state.crosses_target or is_due)
