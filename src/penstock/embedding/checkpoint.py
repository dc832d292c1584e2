"""placeholder"""


class Trail:
    pass


def save_store(*a): ...
def load_store(*a): ...
def read_description(*a): ...
