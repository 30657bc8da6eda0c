"""Facts that leave no trace in tensors: what each possible producer meant by a key."""

from collections.abc import Sequence
from typing import Any

from eagleconv.drafter.facts import Fact, Question
from eagleconv.drafter.layouts.layout import Layout


def feedback(
    layouts: Sequence[Layout], value: Any, key: str, declared: str | None, explicit_residual: bool
) -> Fact | Question:
    """Decide what is fed to the next draft step.

    Args:
        layouts: The possible ones.
        value: `norm_output` as written, or None.
        key: Its key.
        declared: `feedback` or `head`, from the user.
        explicit_residual: Whether norm_before_residual is written: SpecForge never does.
    """
    keys = (key,) if key else ()
    if value is None:
        return Fact(
            "pre_norm",
            "default",
            "no norm_output, and every trainer then feeds the un-normed state back",
        )
    heads = [x for x in layouts if ("norm_output", "norm_output_head") in x.keys]
    if declared is not None:
        if declared == "head":
            if value is False:
                return Question(
                    "feedback",
                    "norm_output: false in SpecForge's old meaning skips the norm before lm_head, "
                    "which no engine computes.",
                    "--norm-output-meaning feedback, if that is not what it was trained with",
                )
            return Fact("pre_norm", "user", "norm_output gates the norm before lm_head", keys)
        return Fact(
            "post_norm" if value else "pre_norm", "user", "norm_output is the feedback", keys
        )
    if not heads or (value is False and explicit_residual):
        why = "norm_output, as every engine reads it"
        return Fact("post_norm" if value else "pre_norm", "read", why, keys)
    if len(heads) == len(layouts) and value is True and heads[0].certain_key:
        return Fact(
            "pre_norm", "read", "SpecForge's norm_output gates the norm before lm_head", keys
        )
    if value is True:
        return Question(
            "feedback",
            "norm_output: true means post-norm feedback to engines, TorchSpec and speculators, but "
            "only a norm before lm_head (with EAGLE-3's pre-norm feedback) to SpecForge up to "
            "0.2.0, which may have written this file.",
            "--norm-output-meaning feedback (post-norm) or --norm-output-meaning head (pre-norm)",
        )
    return Question(
        "feedback",
        "norm_output: false means pre-norm feedback to engines, but no norm before lm_head at all "
        "to SpecForge up to 0.2.0, which may have written this file.",
        "--norm-output-meaning feedback (pre-norm) or head (no engine computes that)",
    )


def residual(
    layouts: Sequence[Layout], value: Any, key: str, declared: bool | None
) -> Fact | Question:
    """Decide whether the residual branch starts from the normed state."""
    words = {True: "normed", False: "raw"}
    keys = (key,) if key else ()
    if declared is not None:
        return Fact(words[declared], "user", "declared by --norm-before-residual", keys)
    flag = "--norm-before-residual true or --norm-before-residual false"
    if value is not None:
        doubt = [x for x in layouts if value is True and "residual true" in x.absent]
        if doubt:
            why = doubt[0].absent["residual true"].why
            return Question("residual", f"norm_before_residual is true, but {why}.", flag)
        return Fact(words[bool(value)], "read", "norm_before_residual", keys)
    meanings = [x.absent["residual"] for x in layouts if "residual" in x.absent]
    readings = {r for m in meanings for r in m.readings}
    if len(meanings) < len(layouts):
        readings.add("raw")
    if len(readings) > 1:
        why = next(m.why for m in meanings if len(m.readings) > 1)
        return Question("residual", f"norm_before_residual is absent: {why}.", flag)
    why = "no norm_before_residual, and the trainers that can have written this train raw"
    return Fact(next(iter(readings)), "default", why)
