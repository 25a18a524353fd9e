"""Start the service."""

from orchard.app import make_app

if __name__ == "__main__":
    make_app().run()
