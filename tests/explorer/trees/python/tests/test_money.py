from ledgerly.model.money import Money


def test_amounts_add_up() -> None:
    assert Money(1).plus(Money(2)) == Money(3)


def test_amounts_subtract() -> None:
    assert Money(3).minus(Money(2)) == Money(1)
