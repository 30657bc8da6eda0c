"""Every way eagleconv fails on purpose: one sentence, one hint, one exit code."""


class EagleconvError(Exception):
    """Base of all errors a user can cause or meet.

    Attributes:
        message: One sentence: what, where (file, key or tensor), what was expected.
        hint: What to do about it; may be empty.
        exit_code: The exit code of the command line contract.
    """

    exit_code = 4

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(EagleconvError):
    """The call itself is wrong: an option's value, or two options that exclude each other."""

    exit_code = 2


class SourceError(EagleconvError):
    """The input cannot be read, or is not a drafter."""

    exit_code = 3


class ConversionError(EagleconvError):
    """A conversion, export or verification failed, or would have to guess. No output is left."""

    exit_code = 4


class OpenQuestions(ConversionError):
    """The files allow more than one reading.

    Attributes:
        questions: One line per question; each names the readings and the flag that answers it.
    """

    def __init__(self, message: str, questions: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint)
        self.questions = questions


class MissingExtraError(EagleconvError):
    """An optional package, an engine or a GPU that was asked for is missing."""

    exit_code = 5
