"""`tidemark init`."""

import re
from pathlib import Path

import click

from ingest.cli.terminal import print_line
from ingest.new_project.new_project import KINDS, NewProject, add_package


@click.command()
@click.option("--source", "kind", type=click.Choice(KINDS), default="postgres", show_default=True, help="Its kind.")
@click.option(
    "--dsn-env",
    default="",
    metavar="NAME",
    help="The environment variable with the source's address. Default: by the folder's name, such as SHOP_DSN.",
)
@click.option(
    "--package-only",
    is_flag=True,
    help="Only write the dbt package, packages/tidemark: into an existing dbt project, or after an upgrade.",
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def init(folder: Path, kind: str, dsn_env: str, package_only: bool) -> None:
    """Write a new dbt project into FOLDER, such as `shop`: settings of a source, profile and dbt package.

    Project, profile and source have the folder's name. Overwrites nothing but the dbt package of --package-only.
    """
    if dsn_env and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", dsn_env):
        raise click.UsageError("--dsn-env takes the name of an environment variable.")
    if package_only:
        for line in add_package(folder):
            print_line(line)
        return
    project = NewProject(folder, kind, dsn_env)
    for path in project.write():
        print_line(f"wrote {path}")
    print_line(f"Next: cd {folder}; export {project.dsn_variable}=...; tidemark check; tidemark codegen; tidemark run")
