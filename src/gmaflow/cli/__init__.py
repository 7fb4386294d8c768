"""cli."""


def main() -> None: ...
