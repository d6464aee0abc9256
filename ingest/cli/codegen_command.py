"""`tidemark codegen`."""

import sys
from pathlib import Path

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.cli.terminal import print_line
from ingest.common.errors import Failure, UsageError
from ingest.config.sources_file import load


@click.command()
@options.SOURCES
@options.TARGET
@click.option("--source", "source_name", metavar="NAME", help="Only this source.")
@click.option("--force", is_flag=True, help="Overwrite the files of the named tables.")
@click.option(
    "--diff", "as_diff", is_flag=True, help="Print what --force would change as a unified diff. Write nothing."
)
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
def codegen(
    sources: str, target: str | None, source_name: str | None, force: bool, as_diff: bool, tables: tuple[str, ...]
) -> None:
    """Write staging views: models/staging/stg_<source>__<table>.sql and .yml from the source's catalog.

    You may edit the files. A file that differs from the generated one is not changed, and is listed: `--force
    public.orders` overwrites the files of that table. TABLE is a name or a pattern as in sources.yml; '*.*' is all.

    A table keeps its view's name: another table whose view would have the same name gets a hash suffix. Spark tests
    each new view before its file is written. Exit code 1 if Spark rejects a view, or a source can't be read; the other
    views are written.
    """
    from ingest.codegen.view_trial import ViewTrial
    from ingest.commands.codegen import Codegen
    from ingest.project.dbt_package import find_package

    settings = load(sources)
    if not Path("dbt_project.yml").is_file():
        raise UsageError("there is no dbt project here", "dbt_project.yml", "Run the command in the project's folder")
    if force and not tables:
        fix = "Name them, as in `tidemark codegen --force public.orders`; '*.*' is all"
        raise UsageError("no tables to overwrite", "--force", fix)
    command = Codegen(
        ViewTrial(lambda: open_lake(target, is_short_command=True).spark, find_package(Path()) / "macros").try_view,
        tables=tables,
        force=force,
    )
    rejected_tables: list[str] = []
    failures: list[Failure] = []
    for source in [settings.source(source_name)] if source_name else settings.sources.values():
        try:
            if as_diff:
                lines = list(command.diff(source, settings.settings))
            else:
                result = command.write(source, settings.settings)
                lines, rejected_tables = result.lines, rejected_tables + result.refused
        except Failure as failure:  # the other sources' views are written anyway
            failures.append(failure)
            lines = []
        for line in lines:
            print_line(line)
    for error in failures[:-1]:
        print_line(f"tidemark: {error}", err=True)
    if failures:
        raise failures[-1]
    command.check_tables_exist()
    if rejected_tables:
        sys.exit(1)
