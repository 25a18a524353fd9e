"""Routes."""

from orchard import counting
from orchard.counting import Picture


class App:
    def run(self) -> None:
        self.route("/count")

    def route(self, path: str) -> int:
        return counting.count(Picture(b"")) if path == "/count" else 404


def make_app() -> App:
    return App()
