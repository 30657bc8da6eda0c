"""A checkpoint that contradicts itself: an error for whoever converts, a finding for validation."""

from eagleconv.errors import SourceError


class Contradiction(SourceError):
    """Config and tensors, or two of either, contradict each other.

    Attributes:
        code: Code of the rule it breaks (`rules/`).
        what: The sentence without the checkpoint's name.
        tensor: Stored name of the tensor it is about, or empty.
        key: Dotted config key it is about, or empty.
    """

    def __init__(
        self, code: str, where: str, what: str, hint: str = "", *, tensor: str = "", key: str = ""
    ) -> None:
        super().__init__(f"{where}: {what}", hint)
        self.code = code
        self.what = what
        self.tensor = tensor
        self.key = key
