"""The picture of a map in the terminal has the same boxes and numbers as its Mermaid."""

from __future__ import annotations

import re
import unicodedata

import pytest
from rich.cells import cell_len

from retinue.models.explorer.mermaid import graph
from retinue.syntax.overview.map_facts import AreaEdge, AreaRow
from retinue.syntax.project.places import Place
from retinue.view.graph_picture import picture, read_graph

HERE = Place("a", 1)


def mermaid(sizes: dict[str, int], edges: dict[tuple[str, str], int]) -> str:
    areas = [AreaRow(name, n, n * 100) for name, n in sizes.items()]
    text = graph(areas, [AreaEdge(a, b, n, HERE) for (a, b), n in edges.items()])
    assert text.startswith("```mermaid\n") and text.endswith("\n```")
    return text.removeprefix("```mermaid\n").removesuffix("\n```")


FLASK = mermaid(
    {"src/flask/": 18, "src/flask/sansio/": 3, "src/flask/json/": 3},
    {
        ("src/flask/", "src/flask/sansio/"): 11,
        ("src/flask/sansio/", "src/flask/"): 15,
        ("src/flask/", "src/flask/json/"): 4,
        ("src/flask/json/", "src/flask/"): 2,
        ("src/flask/sansio/", "src/flask/json/"): 2,
        ("src/flask/json/", "src/flask/sansio/"): 1,
    },
)


def test_users_are_above_what_they_use_and_what_leads_back_points_up() -> None:
    pictures = picture(FLASK, 80)
    assert pictures is not None
    rows = pictures.split("\n")
    at = {
        name: next(n for n, row in enumerate(rows) if f"│ {name} " in row)
        for name in ("src/flask/", "src/flask/sansio/", "src/flask/json/")
    }
    assert at["src/flask/sansio/"] < at["src/flask/"] < at["src/flask/json/"]
    assert "15 ↑11" in pictures and "4 ↑2" in pictures and "2 ↑1" in pictures
    assert pictures.count("▼") == 3 and max(map(len, rows)) <= 80


def test_a_plain_terminal_gets_plain_characters() -> None:
    pictures = picture(FLASK, 80, is_unicode=False)
    assert pictures is not None and pictures.isascii() and "+--" in pictures and "v" in pictures


def numbers(text: str) -> list[int]:
    return sorted(int(n) for n in re.findall(r"(?<![\w.])\d+(?![\w.,])", text))


@pytest.mark.parametrize("n", [7, 12])
def test_many_boxes_are_a_table_with_every_number(n: int) -> None:
    names = {f"area{k}/": 2 for k in range(n)}
    edges = {
        (f"area{a}/", f"area{b}/"): 100 + a * n + b
        for a in range(n)
        for b in range(n)
        if (a + b) % 3 == 0 and a != b
    }
    pictures = picture(mermaid(names, edges), 100)
    assert pictures is not None and "▼" not in pictures and "from \\ to" in pictures
    assert [x for x in numbers(pictures) if x >= 100] == sorted(edges.values())
    assert pictures.count("\n") == n and max(map(len, pictures.split("\n"))) <= 100


def test_boxes_that_are_too_wide_for_the_terminal_are_a_table() -> None:
    names = {f"a/very/long/name/of/an/area/number/{k}/": 2 for k in range(3)}
    first, *rest = names
    pictures = picture(mermaid(names, {(first, other): 1 for other in rest}), 60)
    assert (
        pictures is not None
        and "from \\ to" in pictures
        and max(map(len, pictures.split("\n"))) <= 60
    )


def test_what_has_no_arrow_is_named_below_and_does_not_count_as_a_box() -> None:
    names = {f"area{k}/": 2 for k in range(6)}
    first, *rest = names
    pictures = picture(mermaid({**names, "shell/": 2}, {(first, other): 1 for other in rest}), 200)
    assert pictures is not None and pictures.count("┌─") >= 6 and "│ shell/" not in pictures
    assert pictures.split("\n")[-1] == "without an arrow: shell/, 2 files, 200 lines"


def test_wide_characters_take_two_cells_of_their_box() -> None:
    text = mermaid({"日本語/": 2, "b/": 1}, {("b/", "日本語/"): 3})
    pictures = picture(text, 80)
    assert pictures is not None and "│ 日本語/" in pictures
    box = [row.strip() for row in pictures.split("\n") if "日本語" in row or "┌" in row][-2:]
    assert len({cell_len(row) for row in box}) == 1
    many = {f"漢字{n}/": 2 for n in range(7)}
    first, *rest = many
    table = picture(mermaid(many, {(first, other): 1 for other in rest}), 100)
    assert table is not None and len({cell_len(row) for row in table.split("\n")}) == 1


@pytest.mark.parametrize("name", ["cafe\u0301s/", "q\u0323\u0307x/", "नमस्ते/", "日\u0301本/"])
def test_letters_of_several_characters_take_the_cells_that_are_shown(name: str) -> None:
    pictures = picture(mermaid({name: 2, "b/": 1}, {("b/", name): 3}), 80)
    normal_name = unicodedata.normalize("NFC", name)
    assert pictures is not None and f"│ {normal_name}" in pictures
    box = pictures.split("\n")[-4:]
    assert len({cell_len(row.strip()) for row in box}) == 1, pictures
    many = {name: 2, **{f"area{n}/": 2 for n in range(6)}}
    table = picture(mermaid(many, {(name, other): 1 for other in list(many)[1:]}), 100)
    assert table is not None and normal_name in table
    assert (
        len({cell_len(row) for row in table.split("\n") if "area" in row or normal_name in row})
        == 1
    )


def test_a_ring_is_drawn_too() -> None:
    ring = {("a/", "b/"): 3, ("b/", "c/"): 2, ("c/", "a/"): 1}
    pictures = picture(mermaid({"a/": 1, "b/": 1, "c/": 1}, ring), 80)
    assert pictures is not None and {1, 2, 3} <= set(numbers(pictures.replace("↑", " ")))


def test_the_mermaid_of_many_areas_stays_a_part_of_a_page_and_reads_back() -> None:
    names = {f"area{k}/": k + 1 for k in range(11)}
    edges = {(a, b): 7 for a in names for b in names if a != b}
    text = mermaid(names, edges)
    assert text.count("\n") < 40 and max(map(len, text.split("\n"))) <= 100
    result = read_graph(text)
    assert result is not None and len(result.edges) == len(edges) and len(result.labels) == 11


@pytest.mark.parametrize("code", ["", "sequenceDiagram\nA->>B: x", "graph TD\nA((x))", "graph TD"])
def test_what_is_no_graph_of_ours_is_left_as_it_is(code: str) -> None:
    assert picture(code, 80) is None
