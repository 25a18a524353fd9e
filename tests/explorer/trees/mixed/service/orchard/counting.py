"""Counting apples."""


class Picture:
    def __init__(self, data: bytes) -> None:
        self.data = data


def count(picture: Picture) -> int:
    return picture.data.count(b"apple")
