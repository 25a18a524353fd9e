from orchard.counting import Picture, count


def test_an_empty_picture_has_no_apples() -> None:
    assert count(Picture(b"")) == 0
