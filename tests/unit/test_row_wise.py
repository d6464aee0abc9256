"""Which queries can be evaluated for changed rows only (rule B5)."""

import pytest

from dbt.adapters.tidemark.row_wise import CHANGED_ROWS, RowWiseCheck, UnreadableQuery
from tests.unit.calling import Macros

KEY = "checkpoint_id as _checkpoint_id"
COLUMNS = "cast(columns['id'] as bigint) as id, columns['status'] as status, columns['now'] as `now`"
VIEWS = {
    "staging.orders": f"select row_key as _row_key, {KEY}, {COLUMNS} from core.row_state where not deleted",
    "staging.notes": f"select if(copy = 1, row_key, row_key || '#' || copy) as _row_key, {KEY}, columns['word'] as word"
    " from core.row_state lateral view explode(sequence(1, multiplicity)) as copy where not deleted",
    "staging.named": "select cast(_row_key as string) as _row_key, _checkpoint_id, status from staging.orders",
    "staging.bare": "select _row_key, id from staging.orders",
    "staging.made": "select concat(_row_key, '/', line) as _row_key, _checkpoint_id, id from staging.orders "
    "lateral view explode(array('1', '2')) as line",
    "staging.own": "select _row_key, cast(0 as bigint) as _checkpoint_id, id from staging.orders",
    "staging.young": "select _row_key, _checkpoint_id, id from staging.orders where date '2020-01-01' < date 'today'",
    "staging.summed": "select _row_key, _checkpoint_id, sum(id) as id from staging.orders group by 1, 2",
}
WIDE = Macros("casts", "sql_helpers").with_ordered_texts("core.row_state", ["id", "now"])
VIEWS["staging.wide"] = (
    f"select row_key as _row_key, {KEY}, get(ordered_texts, 1) as `now` from {WIDE} where not deleted"
)
AGGREGATES = {"try_sum", "histogram_numeric"}


def problem(query: str) -> str:
    """Why a query is refused. {orders}: the changed rows of a view, by `rows('orders')`."""
    inputs = {view.partition(".")[2]: f"(select * from {view} {CHANGED_ROWS})" for view in VIEWS}
    return RowWiseCheck(VIEWS, AGGREGATES.__contains__).problem(query.format(**inputs))


@pytest.mark.parametrize(
    "query",
    [
        "select _row_key, id from {orders}",
        "select _row_key, upper(status) as `Status`, 'today' as said, now from {orders} o where o.id between 1 and 3",
        "select * except (status) from {orders} where status in ('a', 'b') or status like any ('d')",
        "select cast(_row_key as string) as _row_key, status from {named}",
        "with a as (select * from {orders}), b as (select a.*, 1 as one from a) select b._row_key, one from b",
        "select _row_key, word, 'rand(1)' as said from {notes} -- now()",
        "select _row_key, line from {orders} lateral view outer explode(array(1, 2)) lines as line",
        "select _row_key, exists(array(1), x -> x = id) as e, aggregate(array(1), 0, (a, x) -> a + x) f from {orders}",
        "select o.*, id + 1 as next_id from {orders} as o",
        "select orders.* except (id) from (select * from {orders}) as orders",
        "select _row_key, now from {wide} where now like 'a%'",
        "select _row_key, from_json(status, 'map<string, string>')['today'] as s from {orders}",
    ],
)
def test_projections_and_filters_of_one_input_are_row_by_row(query: str) -> None:
    assert problem(query) == ""


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("select _row_key, max(id) as id from {orders} group by _row_key", "Aggregate"),
        ("select _row_key, id from {summed}", "Aggregate"),
        ("select any(id > 1) as a from {orders}", "Aggregate"),
        ("select try_sum(id) as a from {orders}", "Aggregate"),
        ("select _row_key, row_number() over (order by id) as place from {orders}", "Window"),
        ("select _row_key, id from {orders} order by id", "Sort"),
        ("select _row_key, id from {orders} limit 3", "Limit"),
        ("select distinct _row_key from {orders}", "Distinct"),
        ("select a._row_key from {orders} a join staging.orders b on a.id = b.id", "Join"),
        ("select a._row_key from {orders} a, staging.orders b", "Join"),
        ("select _row_key from {orders} union all select _row_key from staging.orders", "Union"),
        ("select _row_key from {orders} tablesample (10 percent)", "sample"),
        ("select _row_key, (select max(id) from staging.orders) as m from {orders}", "a subquery"),
        ("select _row_key from {orders} where id in (select id from staging.orders)", "a subquery"),
        ("select _row_key, exists (select 1 from staging.orders) as e from {orders}", "a subquery"),
        ("select _row_key, rand() as r from {orders}", "rand"),
        ("select _row_key, now() as r from {orders}", "now"),
        ("select _row_key, unix_timestamp() as r from {orders}", "current_timestamp"),
        ("select _row_key, localtimestamp as r from {orders}", "localtimestamp"),
        ("select concat(_row_key, '!') as _row_key from {orders}", "a _row_key of its own"),
        ("select id as _row_key from {orders}", "a _row_key of its own"),
        ("select _row_key from {made}", "a _row_key of its own"),
        ("select _row_key from {own}", "a _checkpoint_id of its own"),
        (
            "with c(_row_key, a, b) as (select id, a, b from {orders}) select _row_key, a from c",
            "a list of column names",
        ),
        ("select _row_key, id from {orders} as o(id, _checkpoint_id, _row_key)", "a list of column names"),
        ("select _row_key from (select id, _row_key from {orders}) as s(_row_key, id)", "a list of column names"),
        ("select x.* from (select named_struct('_row_key', id) as x from {orders})", "a _row_key of its own"),
        ("select inline(array(named_struct('_row_key', id))) from {orders}", "a _row_key of its own"),
        ("select explode(map(id, 1)) as (_row_key, v) from {orders}", "a _row_key of its own"),
        ("select copy as _row_key from {orders} lateral view explode(array('1')) as copy", "a _row_key of its own"),
    ],
)
def test_a_query_with_rows_that_depend_on_more_than_their_own_is_refused(query: str, why: str) -> None:
    assert why in problem(query)


@pytest.mark.parametrize(
    "condition",
    [
        "date '2020-01-01' < date 'today'",
        "cast(' NOW' as timestamp) > d",
        "d < 'Tomorrow UTC'",
        "d between 'yesterday' and e",
        "to_date('today') = d",
        "extract(day from 'now') > 0",
        "date_part('day', 'now') > 0",
        "'now' - interval 1 day > d",
        "d < cast(r'today' as date)",
    ],
)
def test_a_date_relative_to_the_run_is_refused(condition: str) -> None:
    assert " with '" in problem(f"select _row_key from {{orders}} where {condition}")
    assert "with 'today'" in problem("select _row_key from {young}")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("select _row_key from {orders} union all select _row_key from {orders}", "reads 2 inputs by rows(...)"),
        ("select _row_key from staging.orders -- {orders}", "reads 0 inputs by rows(...)"),
        ("with unused as (select * from {orders}) select _row_key from staging.orders", "another input in addition"),
        ("select _row_key from {bare}", "the view of rows(...) has no _checkpoint_id"),
    ],
)
def test_a_query_reads_one_input_by_rows(query: str, why: str) -> None:
    assert why in problem(query)


def test_a_query_that_cannot_be_read_is_not_accepted() -> None:
    with pytest.raises(UnreadableQuery, match="line 2"):
        problem("select _row_key\nfrom {orders} where date r'today' < d")
    with pytest.raises(UnreadableQuery, match="does not know"):
        problem("select _row_key from {orders} |> limit 3")
