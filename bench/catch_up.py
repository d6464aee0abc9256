"""A catch-up: one run over many events, and how evenly its tasks share the work."""

from collections.abc import Iterator
from threading import Event, Thread

from pyspark.sql import SparkSession

from bench import dataset
from bench.dbt_project import BenchmarkProject
from bench.environment import Environment
from bench.resource_usage import Run, stopwatch
from bench.result import Result, compare_durations
from bench.runner import Side, run_in_turns

ROWS, UPDATES = 1_000_000, 10
BUSIEST_MARK = 2.0
# A stage with a smaller share of the run's task time is not compared.
_SHARE = 0.02
# Spark keeps the last 20 stages: more do not end within this time.
_POLL_SECONDS = 0.2


def results(environment: Environment) -> Iterator[Result]:
    """Measures one run over ten updates of each row."""
    rows = environment.sized(ROWS)
    dataset.create_table(environment.dsn, "caught_up", rows)
    arguments = {"dsn": environment.dsn, "table": "caught_up", "folder": environment.new_folder("caught_up")}
    runs = run_in_turns({"ours": Side("bench.catch_up:caught_up", arguments)}, runs=1, warm_ups=0)["ours"]
    yield compare_durations("catch-up: a run over 10M events", runs)
    busiest, one_task = (runs[0].stages[name] for name in ("busiest task", "one task"))
    yield Result("catch-up: busiest / mean task of a stage", busiest, None, "times", BUSIEST_MARK, False)
    yield Result("catch-up: task time in stages of one task", 100 * one_task, None, "%", higher_is_better=False)


def caught_up(dsn: str, table: str, folder: str) -> Iterator[Run]:
    """One run over `UPDATES` updates of all rows, each in its own transaction."""
    bench_project = BenchmarkProject(dsn, table, folder)
    for column in ("customer", "status"):
        bench_project.write_definition(f"by_{column}", column)
    bench_project.ingest()
    pipeline = bench_project.pipeline()
    pipeline.model()
    with dataset.connect(dsn) as connection:
        for _ in range(UPDATES):
            connection.execute(f"update {table} set amount = amount + 1".encode())
    bench_project.ingest()
    watch = _StageWatch(bench_project.lake.spark)
    with watch, stopwatch() as run:
        dbt_run = pipeline.model()
    run.stages = {outcome.name: outcome.seconds for outcome in dbt_run.outcomes} | watch.summarize()
    yield run


class _StageWatch:
    """The durations of the tasks of all stages of Spark while the body runs, in ms by stage."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._tasks: dict[int, list[int]] = {}
        self._ended = Event()
        self._thread = Thread(target=self._poll)

    def __enter__(self) -> None:
        self._read()
        self._before = set(self._tasks)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._read()

    def summarize(self) -> dict[str, float]:
        """The largest ratio of a stage's longest task to its mean one, of stages with several tasks (`busiest task`),
        and the share of all task time in stages with a single one (`one task`).
        """
        stages = [tasks for stage, tasks in self._tasks.items() if stage not in self._before]
        total = sum(map(sum, stages))
        return {
            "busiest task": max(
                max(tasks) * len(tasks) / sum(tasks)
                for tasks in stages
                if len(tasks) > 1 and sum(tasks) > _SHARE * total
            ),
            "one task": sum(sum(tasks) for tasks in stages if len(tasks) == 1) / total,
        }

    def _poll(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            self._read()

    def _read(self) -> None:
        assert self._context._gateway is not None
        store = self._context._jsc.sc().statusStore()
        no_quantiles = self._context._gateway.new_array(self._context._gateway.jvm.double, 0)
        stages = store.stageList(None, False, False, no_quantiles, None)
        for stage in (stages.apply(index) for index in range(stages.size())):
            if stage.stageId() not in self._tasks and stage.status().toString() == "COMPLETE":
                tasks = store.taskList(stage.stageId(), stage.attemptId(), stage.numTasks())
                self._tasks[stage.stageId()] = [
                    int(task.duration().get()) for task in map(tasks.apply, range(tasks.size()))
                ]
