"""Areas are folders as they stand, and groups of names where one folder has all files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retinue.syntax.overview.areas import divide, is_by_words


def test_the_largest_folder_is_opened_and_its_own_files_have_its_name() -> None:
    sizes = {
        "src/flask/app.py": 50,
        "src/flask/cli.py": 30,
        "src/flask/json/tag.py": 10,
        "src/flask/sansio/app.py": 20,
    }
    assert divide(sizes) == {
        "src/flask/app.py": "src/flask/",
        "src/flask/cli.py": "src/flask/",
        "src/flask/json/tag.py": "src/flask/json/",
        "src/flask/sansio/app.py": "src/flask/sansio/",
    }


def test_a_small_folder_stays_closed_and_small() -> None:
    sizes = {f"core/m{n}/x.c": 100 for n in range(4)} | {"ci/a/b.sh": 1}
    areas = divide(sizes)
    assert areas["ci/a/b.sh"] == "ci/" and areas["core/m0/x.c"] == "core/m0/"


def test_a_large_flat_folder_is_divided_by_the_first_word_of_names() -> None:
    sizes = {f"cmd-{n}.c": 10 for n in range(40)} | {"tmux.c": 5, "tmux.h": 5, "log.c": 5}
    areas = divide(sizes)
    assert areas["cmd-7.c"] == "cmd*" and areas["log.c"] == areas["tmux.c"] == "other"
    assert is_by_words(areas.values()) and not is_by_words(["src/"])


def test_a_flat_folder_of_few_files_is_one_area() -> None:
    assert set(divide({f"lib/{n}.js": 10 for n in range(6)}).values()) == {"lib/"}


def test_a_file_alone_at_the_top_is_an_area_by_its_name() -> None:
    areas = divide({"main.go": 1, "src/a/x.go": 10, "src/b/y.go": 10})
    assert areas["main.go"] == "main.go"
    assert divide({"a.go": 1, "b.go": 1, "src/a/x.go": 10})["a.go"] == "./"


def test_no_area_has_a_brace_or_overlaps_another() -> None:
    sizes = {f"src/p{n % 12}/m{n}.py": n + 1 for n in range(60)} | {"src/x.py": 3}
    areas = divide(sizes)
    assert set(areas) == set(sizes)
    assert not any("{" in name or "," in name for name in areas.values())
    assert all(path.startswith(name.rstrip("*")) for path, name in areas.items())


def test_a_group_of_names_is_not_opened_again_however_large_it_is() -> None:
    sizes = {f"lib/lib.{n}.ts": 1_000 for n in range(100)} | {"lib/tsc.js": 10, "bin/x.js": 10}
    areas = divide(sizes)
    assert set(areas.values()) == {"lib/lib*", "lib/other", "bin/"}
    assert areas["lib/lib.7.ts"] == "lib/lib*"


@given(
    st.dictionaries(
        st.lists(st.sampled_from(["a", "ab", "a.b", "other", "a*"]), min_size=1, max_size=4).map(
            "/".join
        ),
        st.integers(0, 1_000),
        max_size=60,
    )
)
def test_every_file_of_any_tree_has_an_area(sizes: dict[str, int]) -> None:
    assert set(divide(sizes)) == set(sizes)


def test_an_empty_tree_has_no_area() -> None:
    assert divide({}) == {}
