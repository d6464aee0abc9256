"""Keys, replica identities and names that are others, or others for a while."""

from tests.harness.alterations import FULL, ORDERS, Alteration, Outcome, Step, between, once

_ANOTHER = tuple(
    Alteration(
        name,
        ORDERS,
        (
            Step(
                (
                    "update {t} set note = 'before' where id < 3",
                    ddl,
                    "update {t} set note = 'after' where id > 3; delete from {t} where id = 1",
                ),
                Outcome.GENERATION,
            ),
            Step(("update {t} set note = 'last' where id = 5",), Outcome.SAME),
        ),
    )
    for name, ddl in {
        "identity from default to full": "alter table {t} replica identity full",
        "identity from default to an index": (
            "create unique index {t}_u on {t} (n); alter table {t} alter n set not null;"
            "alter table {t} replica identity using index {t}_u"
        ),
        "a key of other columns": ("alter table {t} drop constraint {t}_pkey; alter table {t} add primary key (n, id)"),
    }.items()
)


IDENTITIES = (
    *_ANOTHER,
    Alteration(
        "identity switched to and fro, each time seen",
        ORDERS,
        (
            Step(("alter table {t} replica identity full",), Outcome.GENERATION),
            Step(("delete from {t} where id = 1", "alter table {t} replica identity default"), Outcome.FIRST),
        ),
    ),
    *(
        once(f"{what} switched to and fro unseen", (there, inserted, back), Outcome.ANEW)
        for what, there, inserted, back in (
            (
                "identity",
                "alter table {t} replica identity full",
                "insert into {t} values (77, 'x', 7)",
                "alter table {t} replica identity default",
            ),
            (
                "name",
                "alter table {t} rename to {t}_other",
                "insert into {t}_other values (77, 'x', 7)",
                "alter table {t}_other rename to {t}",
            ),
            (
                "key",
                "alter table {t} drop constraint {t}_pkey",
                "insert into {t} values (77, 'x', 7)",
                "alter table {t} add primary key (id)",
            ),
            (
                "column",
                "alter table {t} rename n to m",
                "insert into {t} values (77, 'x', 7)",
                "alter table {t} rename m to n",
            ),
        )
    ),
    once(
        "a key swapped step by step unseen",
        (
            "alter table {t} drop constraint {t}_pkey; insert into {t} values (77, 'x', 1)",
            "alter table {t} replica identity full; update {t} set n = 5 where id = 77",
            "alter table {t} add primary key (id); alter table {t} replica identity default",
        ),
        Outcome.EQUAL,
    ),
    once(
        "duplicates that came and went without a key take no row with them",
        (
            "alter table {t} drop constraint {t}_pkey",
            "insert into {t} values (1, 'loaded twice', 0)",
            "delete from {t} where note = 'loaded twice'",
            "alter table {t} add primary key (id)",
        ),
        Outcome.EQUAL,
        FULL,
    ),
    *(
        between(ddl, Outcome.SAME, FULL)
        for ddl in ("vacuum full {t}", "reindex table {t}", "reindex table concurrently {t}")
    ),
)
