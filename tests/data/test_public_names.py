from types import ModuleType

from gmaflow import data


def test_public_names_are_the_promised_ones() -> None:
    shown = {
        name
        for name, value in vars(data).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert shown == set(data.__all__)
